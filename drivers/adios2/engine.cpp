/* An engine of ADIOS2, as a plugin: steps of variables become steps of arrays in the tiers of a run.
 *
 *   Put ──▶ the array NAME/VARIABLE, at [step, start…]        EndStep ──▶ the tag `adios2.steps` of NAME: what readers wait for
 *
 * NAME is the parameter `Stream` of the engine (ADIOS2 does not tell a plugin what name is opened), a container below the root. Each variable is an array whose first dimension is the step; a
 * single value is an array of steps alone. Attributes are tags, of the container or (`VARIABLE/KEY`) of an array.
 *
 * Invariant: a step that readers see has all that was put in it; what arrays can't be is refused by name, and nothing of it is written. */

#include <adios2/plugin/PluginEngineInterface.h>
#include <chrono>
#include <map>
#include <terrace/terrace.hpp>
#include <thread>

#if ADIOS2_PLUGIN_ENGINE_INTERFACE != 2 || ADIOS2_USE_MPI
#error "this is for ADIOS2 2.12 without MPI"
#endif

namespace {

const char *const STEPS = "adios2.steps";
const char *const CLOSED = "adios2.closed";

using adios2::Mode;
using adios2::StepStatus;

template <class T> constexpr bool is_cell = !std::is_same_v<T, std::string> && !std::is_same_v<T, long double>;
/* A char of ADIOS2 is a small number. */
template <class T> using cell_of = std::conditional_t<std::is_same_v<T, char>, std::int8_t, T>;

[[noreturn]] void refuse(const std::string &what, const std::string &why) {
    throw std::invalid_argument("terrace: " + what + ": " + why);
}

class Engine final : public adios2::plugin::PluginEngineInterface {
public:
    Engine(adios2::IO io, const std::string &plugin, Mode mode) : PluginEngineInterface(io, plugin, mode), name(stream_of(io, plugin)) {
        if (mode != Mode::Write && mode != Mode::Append && mode != Mode::Read)
            refuse(name, "streams are written, appended to, or read step by step");
        if (mode == Mode::Read) return;
        if (mode == Mode::Write && session.find(name)) session.remove(name, true);
        session.create_container(name, TERRACE_IF_MISSING);
        step = static_cast<std::size_t>(tag_of<std::int64_t>(STEPS).value_or(0));
        session.set_tag(name, STEPS, static_cast<std::int64_t>(step));
        session.set_tag(name, CLOSED, false);
    }

    StepStatus BeginStep(adios2::StepMode, const float timeout) override {
        if (m_OpenMode != Mode::Read) return StepStatus::OK;
        const auto begun = std::chrono::steady_clock::now();
        const std::size_t next = has_begun ? step + 1 : 0;
        for (;;) {
            /* First whether it is closed: after that no step comes. */
            const bool is_closed = tag_of<bool>(CLOSED).value_or(false);
            if (static_cast<std::size_t>(tag_of<std::int64_t>(STEPS).value_or(0)) > next) break;
            if (is_closed) return StepStatus::EndOfStream;
            const std::chrono::duration<float> waited = std::chrono::steady_clock::now() - begun;
            if (timeout >= 0 && waited.count() >= timeout) return StepStatus::NotReady;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        step = next;
        has_begun = true;
        define_below("");
        return StepStatus::OK;
    }

    void EndStep() override {
        if (m_OpenMode == Mode::Read) return;
        PerformPuts();
        put_attributes();
        ++step;
        has_put = false;
        session.set_tag(name, STEPS, static_cast<std::int64_t>(step));
    }

    std::size_t CurrentStep() const override { return step; }
    std::size_t Steps() const override { return static_cast<std::size_t>(tag_of<std::int64_t>(STEPS).value_or(0)); }

    void PerformPuts() override {
        for (auto &transfer : transfers) transfer.wait();
        transfers.clear();
    }

    /* Without steps all is the first one. */
    void DoClose(const int) override {
        if (m_OpenMode == Mode::Read) return;
        if (has_put) EndStep();
        PerformPuts();
        put_attributes();
        session.set_tag(name, CLOSED, true);
    }

#define CALLS(T)                                                                                                                     \
    void DoPutSync(adios2::Variable<T> variable, const T *values) override { put(variable, values, false); }                         \
    void DoPutDeferred(adios2::Variable<T> variable, const T *values) override { put(variable, values, true); }                      \
    void DoGetSync(adios2::Variable<T> variable, T *values) override { get(variable, values, variable.Start(), variable.Count()); }  \
    void DoGetDeferred(adios2::Variable<T> variable, T *values) override { DoGetSync(variable, values); }                            \
    void DoGetSync(adios2::Variable<T> variable, T *values, const adios2::core::Selection &selection) override {                     \
        get_selected(variable, values, selection);                                                                                   \
    }                                                                                                                                \
    void DoGetDeferred(adios2::Variable<T> variable, T *values, const adios2::core::Selection &selection) override {                 \
        get_selected(variable, values, selection);                                                                                   \
    }
    ADIOS2_FOREACH_STDTYPE_1ARG(CALLS)
#undef CALLS
#define CALLS(T)                                                                                                                     \
    void DoPut(adios2::Variable<T> variable, adios2::Variable<T>::Span &, const bool, const T &) override {                          \
        refuse(variable.Name(), "the engine has no buffer to give: put the cells");                                                  \
    }
    ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(CALLS)
#undef CALLS

private:
    static std::string stream_of(const adios2::IO &io, const std::string &plugin) {
        for (const auto &[key, value] : io.Parameters())
            if (key == "Stream" || key == "stream") return value;
        refuse(plugin, "the engine's parameter Stream must name the container below the root that has, or gets, the steps");
    }

    template <class T> std::optional<T> tag_of(const char *key) const {
        if (!session.find(name)) return std::nullopt;
        for (const auto &[known, value] : session.tags(name))
            if (known == key)
                if (const T *one = std::get_if<T>(&value)) return *one;
        return std::nullopt;
    }

    terrace::region region_of(const adios2::Dims &start, const adios2::Dims &count) const {
        terrace::extents offset{step}, counts{1};
        offset.insert(offset.end(), start.begin(), start.end());
        counts.insert(counts.end(), count.begin(), count.end());
        return terrace::region(offset, counts);
    }

    /* The variable's array, which is made when it is first put. */
    template <class T> terrace::array &array_of(const adios2::Variable<T> &variable, const adios2::Dims &shape) {
        const std::string of = variable.Name(), path = name + "/" + of;
        auto found = arrays.find(of);
        if (found == arrays.end()) {
            if (const auto slash = path.rfind('/'); slash > name.size())
                session.create_container(path.substr(0, slash), TERRACE_IF_MISSING);
            if (!session.find(path)) {
                terrace::extents extents{0};
                extents.insert(extents.end(), shape.begin(), shape.end());
                terrace::array_options options;
                options.unlimited.assign(extents.size(), false);
                options.unlimited[0] = true;
                session.create<cell_of<T>>(path, extents, TERRACE_NEW, options);
            }
            found = arrays.emplace(of, session.open_array(path, true)).first;
        }
        const terrace::extents now = found->second.shape();
        if (!std::equal(now.begin() + 1, now.end(), shape.begin(), shape.end()))
            refuse(of, "its shape has changed, and one array has all of its steps");
        if (now[0] < step) refuse(of, "step " + std::to_string(now[0]) + " has none, and readers would see zeroes there");
        return found->second;
    }

    template <class T> void put(const adios2::Variable<T> &variable, const T *values, bool is_deferred) {
        if constexpr (!is_cell<T>) {
            refuse(variable.Name(), "cells are numbers: texts can be attributes");
        } else {
            const bool is_value = variable.ShapeID() == adios2::ShapeID::GlobalValue;
            if (!is_value && variable.ShapeID() != adios2::ShapeID::GlobalArray)
                refuse(variable.Name(), "a local or joined array has no shape of its own: give a shape, a start and a count");
            const adios2::Dims none, shape = is_value ? none : variable.Shape();
            const adios2::Dims start = is_value ? none : variable.Start(), count = is_value ? none : variable.Count();
            terrace::array &array = array_of(variable, shape);
            const terrace::region region = region_of(start, count);
            const terrace::span<const cell_of<T>> cells(reinterpret_cast<const cell_of<T> *>(values), region.cells());
            has_put = true;
            if (region.cells() == 0) return;
            /* A single value may lie in memory that goes. */
            if (!is_deferred || is_value) {
                array.put(cells, region);
            } else {
                transfers.push_back(array.putting(cells, region));
                transfers.back().start();
            }
        }
    }

    template <class T> void get_selected(const adios2::Variable<T> &variable, T *values, const adios2::core::Selection &selection) {
        if (selection.HasBlockSelection() || selection.HasMemorySelection())
            refuse(variable.Name(), "blocks, and places in memory, can't be selected");
        if (selection.GetSelectionType() == adios2::SelectionType::BoundingBox)
            get(variable, values, selection.GetStart(), selection.GetCount());
        else
            get(variable, values, adios2::Dims(variable.Shape().size(), 0), variable.Shape());
    }

    template <class T> void get(const adios2::Variable<T> &variable, T *values, adios2::Dims start, adios2::Dims count) {
        if constexpr (!is_cell<T>) {
            refuse(variable.Name(), "cells are numbers");
        } else {
            if (variable.ShapeID() == adios2::ShapeID::GlobalValue) start = count = {};
            const terrace::region region = region_of(start, count);
            terrace::span<cell_of<T>> cells(reinterpret_cast<cell_of<T> *>(values), region.cells());
            session.open_array(name + "/" + variable.Name()).get_into(cells, region);
        }
    }

    /* The variables that the step has, for the program to ask for. */
    void define_below(const std::string &below) {
        for (const terrace::entry &entry : session.list(below.empty() ? name : name + "/" + below)) {
            const std::string inside = below.empty() ? entry.name : below + "/" + entry.name;
            if (entry.kind == TERRACE_CONTAINER) define_below(inside);
            if (entry.kind == TERRACE_ARRAY) define(inside);
        }
    }

    void define(const std::string &variable) {
        const terrace::array array = session.open_array(name + "/" + variable);
        const terrace::extents shape = array.shape();
        if (shape[0] <= step) {
            m_IO.RemoveVariable(variable);
            return;
        }
        const adios2::Dims cells(shape.begin() + 1, shape.end());
        const std::string type = array.type();
#define DEFINE(T)                                                                                                                    \
    if constexpr (is_cell<T> && !std::is_same_v<T, char>)                                                                            \
        if (type == terrace::type_name<cell_of<T>>() && !m_IO.InquireVariable<T>(variable))                                              \
            m_IO.DefineVariable<T>(variable, cells, adios2::Dims(cells.size(), 0), cells);
        ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(DEFINE)
#undef DEFINE
    }

    void put_attributes() {
        for (const auto &[attribute, parameters] : m_IO.AvailableAttributes()) {
            std::string object = name, key = attribute;
            if (const auto slash = attribute.rfind('/'); slash != std::string::npos && arrays.count(attribute.substr(0, slash))) {
                object += "/" + attribute.substr(0, slash);
                key = attribute.substr(slash + 1);
            }
            if (const auto text = m_IO.InquireAttribute<std::string>(attribute)) {
                if (text.Data().size() == 1) session.set_tag(object, key, text.Data()[0]);
                continue;
            }
            std::vector<double> numbers;
#define READ(T)                                                                                                                      \
    if constexpr (is_cell<T>)                                                                                                        \
        if (const auto found = m_IO.InquireAttribute<T>(attribute))                                                                   \
            for (const T &number : found.Data()) numbers.push_back(static_cast<double>(number));
            ADIOS2_FOREACH_ATTRIBUTE_PRIMITIVE_STDTYPE_1ARG(READ)
#undef READ
            if (numbers.size() == 1) session.set_tag(object, key, numbers[0]);
            if (numbers.size() > 1) session.set_tag(object, key, numbers);
        }
    }

    std::string name;
    terrace::session session;
    std::map<std::string, terrace::array> arrays;
    std::vector<terrace::transfer> transfers;
    std::size_t step = 0;
    bool has_begun = false, has_put = false;
};

} // namespace

extern "C" __attribute__((visibility("default"))) adios2::plugin::PluginEngineInterface *EngineCreate(adios2::IO io, const std::string &plugin,
                                                                                                      Mode mode) {
    return new Engine(io, plugin, mode);
}

extern "C" __attribute__((visibility("default"))) void EngineDestroy(adios2::plugin::PluginEngineInterface *engine) { delete engine; }
