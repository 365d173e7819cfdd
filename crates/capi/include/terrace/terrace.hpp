/* Terrace's objects for C++ programs: terrace.h with handles that close themselves, typed views, and exceptions.
 *
 *   terrace::session session;                                           the agent of this run, or of TERRACE_ROOT
 *   auto array = session.create<double>("sky/image", {4, 6});           a new array; its containers are made
 *   array.put(cells, {{0, 0}, {2, 6}});                                 offset, count (and stride); cells: a vector, an array, a span
 *   auto rows = array.get<double>({{0, 0}, {4, 6}});                    rows(3, 5): the last dimension is the innermost
 *
 * A call that fails throws terrace::error, which has the code and the text of terrace_error(). Handles can be moved, not copied. Their
 * destructors close and say nothing: where the failure of a close matters (bytes that are still to be published), call close().
 * A buffer whose type or size is not that of the array or the region is refused before anything is sent.
 *
 * C++17, this header only; find_package(Terrace) and Terrace::Cxx, or link with -lterrace (pkg-config terrace). What it has no name for
 * is reached by terrace.h and handle(). */
#ifndef TERRACE_TERRACE_HPP
#define TERRACE_TERRACE_HPP

#include <terrace.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace terrace {

/* What failed, on what, and what to do. */
class error : public std::runtime_error {
public:
    error(terrace_code code, const std::string &what) : std::runtime_error(what), code_(code) {}
    terrace_code code() const noexcept { return code_; }

private:
    terrace_code code_;
};

namespace detail {

inline void check(int code) {
    if (code != TERRACE_OK) {
        throw error(static_cast<terrace_code>(code), terrace_error());
    }
}

/* For calls that wait: false where the time was over. */
inline bool came(int code) {
    if (code == TERRACE_BUSY) {
        return false;
    }
    check(code);
    return true;
}

template <class Handle, int (*Close)(Handle *)> struct closer {
    void operator()(Handle *handle) const noexcept { Close(handle); }
};
template <class Handle, int (*Close)(Handle *)> using owned = std::unique_ptr<Handle, closer<Handle, Close>>;

[[noreturn]] inline void invalid(const std::string &what) { throw error(TERRACE_INVALID, what); }

/* An exception must not pass through C: it is kept, the visit ends, and it is thrown behind the call. */
template <class Function> struct visit {
    Function function;
    std::exception_ptr thrown;

    template <class... Arguments> int operator()(Arguments &&...arguments) noexcept {
        try {
            function(std::forward<Arguments>(arguments)...);
            return 0;
        } catch (...) {
            thrown = std::current_exception();
            return 1;
        }
    }
    void end(int code) const {
        if (thrown) {
            std::rethrow_exception(thrown);
        }
        check(code);
    }
};

} // namespace detail

/* The library's name of a cell's type. */
template <class Cell> const char *type_name() {
    using T = std::remove_cv_t<Cell>;
    if constexpr (std::is_same_v<T, bool>) {
        return "bool";
    } else if constexpr (std::is_same_v<T, float>) {
        return "float32";
    } else if constexpr (std::is_same_v<T, double>) {
        return "float64";
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
        return "complex64";
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
        return "complex128";
    } else {
        static_assert(std::is_integral_v<T>, "cells are numbers, bool or std::complex<float or double>");
        constexpr const char *names[2][4] = {{"uint8", "uint16", "uint32", "uint64"}, {"int8", "int16", "int32", "int64"}};
        return names[std::is_signed_v<T>][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
    }
}

/* Cells that lie one after the other, in memory of somebody else: std::span of C++20. */
template <class Cell> class span {
public:
    span() = default;
    span(Cell *data, std::size_t size) : data_(data), size_(size) {}
    /* A vector, std::array, C array, std::span: whatever has its elements in one piece. */
    template <class Container, class Element = std::remove_pointer_t<decltype(std::data(std::declval<Container &>()))>,
              class = std::enable_if_t<std::is_convertible_v<Element (*)[], Cell (*)[]>>>
    span(Container &&container) : data_(std::data(container)), size_(std::size(container)) {}

    Cell *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t size_bytes() const noexcept { return size_ * sizeof(Cell); }
    Cell *begin() const noexcept { return data_; }
    Cell *end() const noexcept { return data_ + size_; }
    Cell &operator[](std::size_t index) const { return data_[index]; }

private:
    Cell *data_ = nullptr;
    std::size_t size_ = 0;
};

using extents = std::vector<std::uint64_t>;

inline std::uint64_t cell_count(const extents &shape) {
    std::uint64_t cells = 1;
    for (const std::uint64_t extent : shape) {
        if (__builtin_mul_overflow(cells, extent, &cells)) {
            detail::invalid("a shape has more cells than 64 bits count");
        }
    }
    return cells;
}

/* Cells of an array: `count` in each dimension, from `offset` on, `stride` apart (1 if it is left out). */
class region {
public:
    region(extents offset, extents count, extents stride = {})
        : offset_(std::move(offset)), count_(std::move(count)), stride_(std::move(stride)) {
        if (count_.empty() || count_.size() > TERRACE_RANK_MAX || offset_.size() != count_.size() ||
            (!stride_.empty() && stride_.size() != count_.size())) {
            detail::invalid("a region's offset, count and stride have the same number of dimensions, 1 to " +
                            std::to_string(TERRACE_RANK_MAX));
        }
    }
    const extents &count() const noexcept { return count_; }
    std::uint64_t cells() const { return cell_count(count_); }
    terrace_region plain() const {
        terrace_region plain{};
        plain.rank = static_cast<int>(count_.size());
        for (std::size_t axis = 0; axis < count_.size(); ++axis) {
            plain.offset[axis] = offset_[axis];
            plain.count[axis] = count_[axis];
            plain.stride[axis] = stride_.empty() ? 1 : stride_[axis];
        }
        return plain;
    }

private:
    extents offset_, count_, stride_;
};

/* Cells with a shape, which own their memory: block(i, j), in C order. */
template <class Cell> class block {
public:
    explicit block(extents shape) : shape_(std::move(shape)), size_(cell_count(shape_)), cells_(new Cell[size_]()) {}
    const extents &shape() const noexcept { return shape_; }
    std::size_t size() const noexcept { return size_; }
    Cell *data() noexcept { return cells_.get(); }
    const Cell *data() const noexcept { return cells_.get(); }
    Cell *begin() noexcept { return data(); }
    Cell *end() noexcept { return data() + size_; }
    const Cell *begin() const noexcept { return data(); }
    const Cell *end() const noexcept { return data() + size_; }
    template <class... Index> Cell &operator()(Index... index) { return cells_[place({static_cast<std::uint64_t>(index)...})]; }
    template <class... Index> const Cell &operator()(Index... index) const {
        return cells_[place({static_cast<std::uint64_t>(index)...})];
    }

private:
    std::size_t place(std::initializer_list<std::uint64_t> index) const {
        if (index.size() != shape_.size()) {
            throw error(TERRACE_OUT_OF_BOUNDS, "as many indices as dimensions are needed: " + std::to_string(shape_.size()));
        }
        std::size_t place = 0, axis = 0;
        for (const std::uint64_t one : index) {
            if (one >= shape_[axis]) {
                throw error(TERRACE_OUT_OF_BOUNDS, "index " + std::to_string(one) + " in a dimension of " + std::to_string(shape_[axis]));
            }
            place = place * shape_[axis++] + one;
        }
        return place;
    }
    extents shape_;
    std::size_t size_;
    /* Not a vector: that of bool has no cells in one piece. */
    std::unique_ptr<Cell[]> cells_;
};

/* A region that is locked until this is destroyed or released. */
class lock {
public:
    explicit lock(terrace_lock *handle) : handle_(handle) {}
    void release() { detail::check(terrace_lock_release(handle_.release())); }

private:
    detail::owned<terrace_lock, terrace_lock_release> handle_;
};

/* A put or get that goes on beside the program. Its memory must stay until it was waited for, or this is destroyed, which waits. */
class transfer {
public:
    explicit transfer(terrace_transfer *handle) : handle_(handle) {}
    void start() { detail::check(terrace_transfer_start(handle())); }
    bool is_done() const {
        bool done = false;
        detail::check(terrace_transfer_test(handle(), &done));
        return done;
    }
    /* False: it is not done yet. Less than 0 seconds: for as long as it takes. */
    bool wait(double seconds = -1) { return detail::came(terrace_transfer_wait(handle(), seconds)); }
    void close() { detail::check(terrace_transfer_close(handle_.release())); }
    terrace_transfer *handle() const noexcept { return handle_.get(); }

private:
    detail::owned<terrace_transfer, terrace_transfer_close> handle_;
};

/* An open array. */
class array {
public:
    explicit array(terrace_array *handle) : handle_(handle) {}

    extents shape() const {
        int rank = 0;
        std::uint64_t shape[TERRACE_RANK_MAX];
        detail::check(terrace_array_shape(handle(), &rank, shape));
        return extents(shape, shape + rank);
    }
    std::string type() const {
        char name[64];
        detail::check(terrace_array_type(handle(), name, sizeof name, nullptr));
        return name;
    }
    region whole() const {
        extents now = shape();
        return region(extents(now.size(), 0), now);
    }

    template <class Cells> void put(const Cells &cells, const region &where) {
        const span<const std::remove_pointer_t<decltype(std::data(cells))>> view(cells);
        fits(view, where);
        const terrace_region plain = where.plain();
        detail::check(terrace_array_put(handle(), &plain, view.data(), view.size_bytes()));
    }
    template <class Cells> void put(const Cells &cells) { put(cells, whole()); }

    template <class Cells> void get_into(Cells &&cells, const region &where) const {
        const span<std::remove_pointer_t<decltype(std::data(cells))>> view(cells);
        fits(view, where);
        const terrace_region plain = where.plain();
        detail::check(terrace_array_get(handle(), &plain, view.data(), view.size_bytes()));
    }
    template <class Cell> block<Cell> get(const region &where) const {
        block<Cell> cells(where.count());
        get_into(cells, where);
        return cells;
    }
    template <class Cell> block<Cell> get() const { return get<Cell>(whole()); }

    /* Made, not started. */
    template <class Cells> transfer putting(const Cells &cells, const region &where) {
        using Cell = std::remove_const_t<std::remove_pointer_t<decltype(std::data(cells))>>;
        /* The library reads only: C's one call has one type for both directions. */
        return moving(TERRACE_PUT, span<Cell>(const_cast<Cell *>(std::data(cells)), std::size(cells)), where);
    }
    template <class Cells> transfer getting(Cells &cells, const region &where) {
        return moving(TERRACE_GET, span<std::remove_pointer_t<decltype(std::data(cells))>>(cells), where);
    }

    /* None: it was not to be had in this time. Less than 0 seconds: for as long as it takes. */
    std::optional<lock> try_lock(const region &where, terrace_lock_mode mode, double seconds = 0) {
        const terrace_region plain = where.plain();
        terrace_lock *made = nullptr;
        if (!detail::came(terrace_array_lock(handle(), &plain, mode, seconds, &made))) {
            return std::nullopt;
        }
        return lock(made);
    }
    void grow(const extents &shape) { detail::check(terrace_array_grow(handle(), static_cast<int>(shape.size()), shape.data())); }
    void resize(const extents &shape) { detail::check(terrace_array_resize(handle(), static_cast<int>(shape.size()), shape.data())); }
    void flush() { detail::check(terrace_array_flush(handle())); }
    void close() { detail::check(terrace_array_close(handle_.release())); }
    terrace_array *handle() const noexcept { return handle_.get(); }

private:
    template <class Cell> void fits(const span<Cell> &cells, const region &where) const {
        const std::string has = type();
        if (has != type_name<Cell>()) {
            throw error(TERRACE_WRONG_KIND, std::string("cells of ") + type_name<Cell>() + " for an array of " + has);
        }
        if (cells.size() != where.cells()) {
            detail::invalid(std::to_string(cells.size()) + " cells for a region of " + std::to_string(where.cells()));
        }
    }
    template <class Cell> transfer moving(terrace_direction direction, const span<Cell> &cells, const region &where) {
        fits(cells, where);
        const terrace_region plain = where.plain();
        terrace_transfer *made = nullptr;
        detail::check(terrace_transfer_create(handle(), direction, &plain, cells.data(), cells.size_bytes(), &made));
        return transfer(made);
    }
    detail::owned<terrace_array, terrace_array_close> handle_;
};

/* An open bytes object. */
class bytes {
public:
    explicit bytes(terrace_bytes *handle) : handle_(handle) {}
    /* How many there were: fewer only at the end. */
    std::size_t read(std::uint64_t position, void *buffer, std::size_t count) const {
        std::size_t got = 0;
        detail::check(terrace_bytes_read(handle(), position, buffer, count, &got));
        return got;
    }
    void write(std::uint64_t position, const void *buffer, std::size_t count) {
        detail::check(terrace_bytes_write(handle(), position, buffer, count));
    }
    /* Where it went. */
    std::uint64_t append(const void *buffer, std::size_t count) {
        std::uint64_t position = 0;
        detail::check(terrace_bytes_append(handle(), buffer, count, &position));
        return position;
    }
    std::uint64_t append(const std::string &text) { return append(text.data(), text.size()); }
    std::uint64_t length() const {
        std::uint64_t length = 0;
        detail::check(terrace_bytes_length(handle(), &length));
        return length;
    }
    void set_length(std::uint64_t length) { detail::check(terrace_bytes_set_length(handle(), length)); }
    void flush() { detail::check(terrace_bytes_flush(handle())); }
    void sync() { detail::check(terrace_bytes_sync(handle())); }
    void close() { detail::check(terrace_bytes_close(handle_.release())); }
    terrace_bytes *handle() const noexcept { return handle_.get(); }

private:
    detail::owned<terrace_bytes, terrace_bytes_close> handle_;
};

/* What an array may have beside its type and shape. */
struct array_options {
    std::vector<bool> unlimited;
    extents chunks;
    std::vector<std::string> dimensions;
    terrace_placement placement = TERRACE_SPREAD;
};

struct entry {
    std::string name;
    terrace_kind kind;
};

/* None: a tag that says nothing but that it is there. */
using tag = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

/* One root, seen by this program. Objects that were opened in it stay open when it ends. */
class session {
public:
    /* A root's path; "": the root of the run that this program belongs to, or that TERRACE_ROOT names. */
    explicit session(const std::string &target = "") {
        terrace_session *made = nullptr;
        detail::check(terrace_connect(target.c_str(), &made));
        handle_.reset(made);
    }

    template <class Cell>
    array create(const std::string &name, const extents &shape, terrace_create how = TERRACE_NEW, const array_options &options = {}) {
        const std::size_t rank = shape.size();
        const auto of_rank = [rank](std::size_t size) { return size == 0 || size == rank; };
        if (rank == 0 || rank > TERRACE_RANK_MAX || !of_rank(options.unlimited.size()) || !of_rank(options.chunks.size()) ||
            !of_rank(options.dimensions.size())) {
            detail::invalid("the array `" + name + "` has 1 to " + std::to_string(TERRACE_RANK_MAX) +
                            " dimensions, and its options as many or none");
        }
        terrace_array_spec spec{};
        spec.data_type = type_name<Cell>();
        spec.rank = static_cast<int>(rank);
        spec.placement = options.placement;
        for (std::size_t axis = 0; axis < rank; ++axis) {
            spec.shape[axis] = shape[axis];
            spec.unlimited[axis] = !options.unlimited.empty() && options.unlimited[axis];
            spec.chunks[axis] = options.chunks.empty() ? 0 : options.chunks[axis];
            spec.dimensions[axis] = options.dimensions.empty() ? nullptr : options.dimensions[axis].c_str();
        }
        terrace_array *made = nullptr;
        detail::check(terrace_array_create(handle(), name.c_str(), &spec, how, &made));
        return array(made);
    }
    array open_array(const std::string &name, bool writable = false) const {
        terrace_array *made = nullptr;
        detail::check(terrace_array_open(handle(), name.c_str(), writable, &made));
        return array(made);
    }
    bytes create_bytes(const std::string &name, terrace_create how = TERRACE_NEW) {
        terrace_bytes *made = nullptr;
        detail::check(terrace_bytes_create(handle(), name.c_str(), how, &made));
        return bytes(made);
    }
    bytes open_bytes(const std::string &name, bool writable = false) const {
        terrace_bytes *made = nullptr;
        detail::check(terrace_bytes_open(handle(), name.c_str(), writable, &made));
        return bytes(made);
    }
    void create_container(const std::string &name, terrace_create how = TERRACE_NEW) {
        detail::check(terrace_container_create(handle(), name.c_str(), how));
    }

    std::vector<entry> list(const std::string &container = "") const {
        std::vector<entry> all;
        auto add = [&all](const char *name, int kind) { all.push_back({name, static_cast<terrace_kind>(kind)}); };
        detail::visit<decltype(add)> visit{add, nullptr};
        visit.end(terrace_list(
            handle(), container.c_str(),
            [](const char *name, int kind, void *context) { return (*static_cast<decltype(visit) *>(context))(name, kind); }, &visit));
        return all;
    }
    /* None: there is no such object. */
    std::optional<terrace_info> find(const std::string &name) const {
        terrace_info info{};
        const int code = terrace_stat(handle(), name.c_str(), &info);
        if (code == TERRACE_NOT_FOUND) {
            return std::nullopt;
        }
        detail::check(code);
        return info;
    }
    /* False: it has not come. Less than 0 seconds: for as long as it takes. */
    bool wait_for(const std::string &name, double seconds = -1) const {
        return detail::came(terrace_wait_for(handle(), name.c_str(), seconds, nullptr));
    }
    void remove(const std::string &name, bool with_contents = false) {
        detail::check(terrace_remove(handle(), name.c_str(), with_contents));
    }
    void rename(const std::string &from, const std::string &to) { detail::check(terrace_rename(handle(), from.c_str(), to.c_str())); }
    void flush(const std::string &name) { detail::check(terrace_flush(handle(), name.c_str())); }
    void evict(const std::string &name) { detail::check(terrace_evict(handle(), name.c_str())); }
    void prefetch(const std::string &name) { detail::check(terrace_prefetch(handle(), name.c_str())); }

    void set_tag(const std::string &name, const std::string &key, const tag &value) {
        terrace_tag plain{};
        plain.tag_type = static_cast<int>(value.index());
        if (const auto *one = std::get_if<bool>(&value)) {
            plain.boolean = *one;
        } else if (const auto *one = std::get_if<std::int64_t>(&value)) {
            plain.integer = *one;
        } else if (const auto *one = std::get_if<double>(&value)) {
            plain.real = *one;
        } else if (const auto *one = std::get_if<std::string>(&value)) {
            if (one->find('\0') != std::string::npos) {
                detail::invalid("the tag `" + key + "` of `" + name + "` has a zero byte in its text");
            }
            plain.text = one->c_str();
        } else if (const auto *all = std::get_if<std::vector<std::int64_t>>(&value)) {
            plain.integers = all->data();
            plain.count = all->size();
        } else if (const auto *all = std::get_if<std::vector<double>>(&value)) {
            plain.reals = all->data();
            plain.count = all->size();
        }
        detail::check(terrace_tag_put(handle(), name.c_str(), key.c_str(), &plain));
    }
    /* Else a literal is taken for a truth by older compilers. */
    void set_tag(const std::string &name, const std::string &key, const char *text) { set_tag(name, key, tag(std::string(text))); }
    std::vector<std::pair<std::string, tag>> tags(const std::string &name) const {
        std::vector<std::pair<std::string, tag>> all;
        auto add = [&all](const char *key, const terrace_tag *plain) { all.emplace_back(key, owned_tag(*plain)); };
        detail::visit<decltype(add)> visit{add, nullptr};
        visit.end(terrace_tags(
            handle(), name.c_str(),
            [](const char *key, const terrace_tag *plain, void *context) {
                return (*static_cast<decltype(visit) *>(context))(key, plain);
            },
            &visit));
        return all;
    }
    void remove_tag(const std::string &name, const std::string &key) {
        detail::check(terrace_tag_delete(handle(), name.c_str(), key.c_str()));
    }

    void close() { detail::check(terrace_disconnect(handle_.release())); }
    terrace_session *handle() const noexcept { return handle_.get(); }

private:
    static tag owned_tag(const terrace_tag &plain) {
        switch (plain.tag_type) {
        case TERRACE_TAG_BOOL:
            return plain.boolean;
        case TERRACE_TAG_INT:
            return plain.integer;
        case TERRACE_TAG_FLOAT:
            return plain.real;
        case TERRACE_TAG_TEXT:
            return std::string(plain.text);
        case TERRACE_TAG_INTS:
            return std::vector<std::int64_t>(plain.integers, plain.integers + plain.count);
        case TERRACE_TAG_FLOATS:
            return std::vector<double>(plain.reals, plain.reals + plain.count);
        default:
            return std::monostate();
        }
    }
    detail::owned<terrace_session, terrace_disconnect> handle_;
};

} // namespace terrace

#endif
