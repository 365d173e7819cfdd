/* The calls of SAVIME's libstaging, over Terrace: programs that were written for it are compiled with this header instead.
 *
 *   staging::server st{"127.0.0.1:7788", 4};          an agent by TCP, and I/O threads; "": the agent of this run
 *   st.run_savime("create_tar(...)");                 queued
 *   staging::dataset ds{"D", "double", st};
 *   ds.write(cells, bytes);                           queued; the memory is left alone until sync
 *   st.sync();                                        all of it is done; throws staging::error if any of it failed
 *
 * Writes between two commands go on side by side, on all threads; a command begins when all before it is done, and what
 * comes after it begins when it is done. A write ends as create_dataset does: whole, or not at all.
 *
 * C++11; link with -lterrace and -pthread. The program terrace-query runs the commands (docs/reference/savime.md). */
#ifndef TERRACE_STAGING_HPP
#define TERRACE_STAGING_HPP

#include <terrace.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace staging {

/* What failed, on what, and what to do. */
class error : public std::runtime_error {
public:
    explicit error(const std::string &what) : std::runtime_error(what) {}
};

namespace detail {

inline void check(int code, const std::string &doing) {
    if (code != TERRACE_OK) {
        throw error(doing + ": " + terrace_error());
    }
}

struct element {
    std::string cell;
    std::size_t bytes;
    std::uint64_t components;
};

/* "double", "int:3"; as create_dataset has them. */
inline element parse(const std::string &type) {
    const std::size_t colon = type.find(':');
    const std::string name = type.substr(0, colon);
    std::uint64_t components = 1;
    if (colon != std::string::npos) {
        char *end = nullptr;
        const char *digits = type.c_str() + colon + 1;
        components = std::strtoull(digits, &end, 10);
        if (end == digits || *end != '\0' || components == 0 || components > 1024) {
            throw error("the type `" + type + "` has no number of components from 1 to 1024");
        }
    }
    if (name == "char") {
        return {"S" + std::to_string(components), static_cast<std::size_t>(components), 1};
    }
    static const struct {
        const char *name;
        const char *cell;
        std::size_t bytes;
    } known[] = {{"int", "int32", 4},      {"int32", "int32", 4},     {"long", "int64", 8},      {"int64", "int64", 8},
                 {"int8", "int8", 1},      {"int16", "int16", 2},     {"uint8", "uint8", 1},     {"uint16", "uint16", 2},
                 {"uint32", "uint32", 4},  {"uint64", "uint64", 8},   {"float", "float32", 4},   {"float32", "float32", 4},
                 {"double", "float64", 8}, {"float64", "float64", 8}};
    for (const auto &one : known) {
        if (name == one.name) {
            return {one.cell, one.bytes * static_cast<std::size_t>(components), components};
        }
    }
    throw error("`" + name + "` is not a type of elements: char, int8 to int64, uint8 to uint64, int, long, float or double");
}

/* A session that ends with this. */
class session {
public:
    explicit session(const std::string &target) {
        check(terrace_connect(target.c_str(), &handle_), "can't connect to " + (target.empty() ? "the agent" : target));
    }
    ~session() { terrace_disconnect(handle_); }
    session(const session &) = delete;
    session &operator=(const session &) = delete;
    terrace_session *get() const { return handle_; }

private:
    terrace_session *handle_ = nullptr;
};

/* One write: parts of it are put by several threads, the last one says that it is a dataset. */
struct written {
    std::string name;
    std::string type;
    element kind;
    const char *cells;
    std::uint64_t count;
    std::string path;
    /* One of them: small datasets are files, large ones arrays, of which several threads write parts. */
    terrace_array *array = nullptr;
    terrace_bytes *file = nullptr;
    std::size_t parts_left = 0;
    bool failed = false;
};

struct operation {
    bool is_command = false;
    std::string text;
    std::string *answer = nullptr;
    bool *done = nullptr;
    std::string *failure = nullptr;
    std::shared_ptr<written> write;
};

struct part {
    std::shared_ptr<written> write;
    std::uint64_t first;
    std::uint64_t count;
};

class queue {
public:
    queue(const std::string &address, std::size_t threads) : target_(target_of(address)) {
        threads = threads == 0 ? 1 : threads;
        for (std::size_t number = 0; number < threads; ++number) {
            sessions_.emplace_back(new session(target_));
        }
        for (std::size_t number = 0; number < threads; ++number) {
            threads_.emplace_back([this, number] { work(*sessions_[number]); });
        }
    }

    ~queue() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            is_ending_ = true;
        }
        changed_.notify_all();
        for (auto &thread : threads_) {
            thread.join();
        }
        for (const auto &failure : failures_) {
            std::fprintf(stderr, "staging: %s\n", failure.c_str());
        }
        if (savime_ != nullptr) {
            terrace_savime_close(savime_);
        }
    }

    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;

    void push(operation &&next) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            operations_.push_back(std::move(next));
        }
        changed_.notify_all();
    }

    std::string run(const std::string &text) {
        std::string answer;
        std::string failure;
        bool done = false;
        operation next;
        next.is_command = true;
        next.text = text;
        next.answer = &answer;
        next.failure = &failure;
        next.done = &done;
        push(std::move(next));
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return done; });
        if (!failure.empty()) {
            throw error(failure);
        }
        return answer;
    }

    void sync() {
        std::vector<std::string> failures;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return operations_.empty() && !head_is_busy_ && writes_ == 0; });
            failures.swap(failures_);
        }
        if (failures.empty()) {
            return;
        }
        std::string all;
        for (const auto &failure : failures) {
            all += (all.empty() ? "" : "\n") + failure;
        }
        throw error(all);
    }

private:
    /* Parts smaller than this are not worth a thread of their own. */
    static const std::uint64_t part_bytes_min = 8u << 20;
    static const std::uint64_t file_bytes_max = 1u << 20;

    static std::string target_of(const std::string &address) {
        return address.empty() || address.find("://") != std::string::npos ? address : "tcp://" + address;
    }

    void work(const session &session) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (!parts_.empty()) {
                const part next = parts_.front();
                parts_.pop_front();
                lock.unlock();
                const std::string failure = put(next);
                lock.lock();
                finish_part(session, *next.write, failure, lock);
            } else if (!operations_.empty() && !head_is_busy_ && (!operations_.front().is_command || writes_ == 0)) {
                operation next = std::move(operations_.front());
                operations_.pop_front();
                head_is_busy_ = true;
                next.is_command ? command(next, lock) : begin(session, next.write, lock);
                head_is_busy_ = false;
                changed_.notify_all();
            } else if (is_ending_ && operations_.empty() && !head_is_busy_ && writes_ == 0) {
                return;
            } else {
                changed_.wait(lock);
            }
        }
    }

    void command(operation &next, std::unique_lock<std::mutex> &lock) {
        lock.unlock();
        std::string answer;
        std::string failure;
        if (savime_ == nullptr && terrace_savime_open(target_.c_str(), &savime_) != TERRACE_OK) {
            failure = terrace_error();
        }
        if (failure.empty()) {
            char *rows = nullptr;
            if (terrace_savime_run(savime_, next.text.c_str(), &rows) == TERRACE_OK) {
                answer = rows;
                terrace_text_free(rows);
            } else {
                failure = terrace_error();
            }
        }
        lock.lock();
        if (next.done != nullptr) {
            *next.answer = answer;
            *next.failure = failure;
            *next.done = true;
        } else if (!failure.empty()) {
            failures_.push_back(failure + " (in: " + next.text.substr(0, 200) + ")");
        }
    }

    /* Makes the array; in the order of the writes, so that of two of one name the first one is it. */
    void begin(const session &session, const std::shared_ptr<written> &write, std::unique_lock<std::mutex> &lock) {
        ++writes_;
        lock.unlock();
        const std::uint64_t bytes = write->count * write->kind.bytes;
        int code = terrace_container_create(session.get(), "datasets", TERRACE_IF_MISSING);
        if (code == TERRACE_OK && bytes <= file_bytes_max) {
            code = terrace_bytes_create(session.get(), write->path.c_str(), TERRACE_NEW, &write->file);
        } else if (code == TERRACE_OK) {
            terrace_array_spec spec = {};
            spec.data_type = write->kind.cell.c_str();
            spec.rank = write->kind.components > 1 ? 2 : 1;
            spec.shape[0] = write->count;
            spec.shape[1] = write->kind.components;
            spec.dimensions[0] = "element";
            spec.dimensions[1] = "component";
            code = terrace_array_create(session.get(), write->path.c_str(), &spec, TERRACE_NEW, &write->array);
        }
        const std::string failure = code == TERRACE_OK ? std::string() : terrace_error();
        lock.lock();
        if (!failure.empty()) {
            failures_.push_back("the dataset `" + write->name + "` was not written: " + failure);
            --writes_;
            return;
        }
        std::uint64_t number = bytes / part_bytes_min;
        number = number < threads_.size() ? number : threads_.size();
        number = number == 0 ? 1 : number;
        write->parts_left = static_cast<std::size_t>(number);
        for (std::uint64_t part = 0; part < number; ++part) {
            const std::uint64_t first = write->count / number * part;
            const std::uint64_t end = part + 1 == number ? write->count : write->count / number * (part + 1);
            parts_.push_back({write, first, end - first});
        }
    }

    static std::string put(const part &next) {
        const written &write = *next.write;
        if (write.file != nullptr) {
            const std::size_t all = static_cast<std::size_t>(write.count) * write.kind.bytes;
            return terrace_bytes_write(write.file, 0, write.cells, all) == TERRACE_OK ? std::string() : terrace_error();
        }
        terrace_region region = {};
        region.rank = write.kind.components > 1 ? 2 : 1;
        region.offset[0] = next.first;
        region.count[0] = next.count;
        region.count[1] = write.kind.components;
        const char *cells = write.cells + next.first * write.kind.bytes;
        const std::size_t bytes = static_cast<std::size_t>(next.count) * write.kind.bytes;
        return terrace_array_put(write.array, &region, cells, bytes) == TERRACE_OK ? std::string() : terrace_error();
    }

    void finish_part(const session &session, written &write, std::string failure, std::unique_lock<std::mutex> &lock) {
        write.failed = write.failed || !failure.empty();
        if (!failure.empty()) {
            failures_.push_back("the dataset `" + write.name + "` was not written: " + failure);
            failure.clear();
        }
        if (--write.parts_left > 0) {
            return;
        }
        lock.unlock();
        if (write.array != nullptr) {
            terrace_array_close(write.array);
        } else if (terrace_bytes_close(write.file) != TERRACE_OK && !write.failed) {
            write.failed = true;
            failure = "the dataset `" + write.name + "` was not written: " + terrace_error();
        }
        if (write.failed) {
            terrace_remove(session.get(), write.path.c_str(), false);
        } else {
            /* Now it is a dataset. */
            terrace_tag type = {};
            type.tag_type = TERRACE_TAG_TEXT;
            type.text = write.type.c_str();
            failure = terrace_tag_put(session.get(), write.path.c_str(), "terrace.dataset", &type) == TERRACE_OK
                          ? std::string()
                          : "the dataset `" + write.name + "` was not written: " + terrace_error();
        }
        lock.lock();
        if (!failure.empty()) {
            failures_.push_back(failure);
        }
        --writes_;
        changed_.notify_all();
    }

    const std::string target_;
    std::vector<std::unique_ptr<session>> sessions_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<operation> operations_;
    std::deque<part> parts_;
    std::vector<std::string> failures_;
    /* Writes that were begun and are not whole yet. */
    std::size_t writes_ = 0;
    bool head_is_busy_ = false;
    bool is_ending_ = false;
    terrace_savime *savime_ = nullptr;
};

} // namespace detail

class server {
public:
    /* `address`: host:port of an agent (`terrace serve --listen`), with the token in TERRACE_TOKEN or TERRACE_TOKEN_FILE; "": the
     * agent of this run, or of TERRACE_ROOT. Throws staging::error where it does not answer. */
    explicit server(const std::string &address = "", std::size_t num_threads = 1)
        : queue_(std::make_shared<detail::queue>(address, num_threads)) {}

    /* Queues commands; what they say is not kept, and what fails is told by sync. */
    std::string run_savime(const std::string &query) {
        detail::operation next;
        next.is_command = true;
        next.text = query;
        queue_->push(std::move(next));
        return "";
    }

    /* Runs commands when all before is done, and gives what the last one says; throws staging::error where one fails. */
    std::string run_savime_sync(const std::string &query) { return queue_->run(query); }

    /* Returns when all earlier writes and commands are done; throws staging::error with all that failed since the last sync. */
    void sync() { queue_->sync(); }

private:
    friend class dataset;
    std::shared_ptr<detail::queue> queue_;
};

class dataset {
public:
    dataset(const std::string &name, const std::string &type, server &st)
        : name_(name), type_(type), kind_(detail::parse(type)), queue_(st.queue_) {
        if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) {
            throw error("`" + name + "` is not a name for a dataset: letters, digits and `_`");
        }
    }

    /* Queues all of the dataset's cells. `cells` must stay as they are until sync. */
    void write(const void *cells, std::size_t bytes) {
        if (bytes == 0 || bytes % kind_.bytes != 0) {
            throw error(std::to_string(bytes) + " bytes are no elements of type " + type_);
        }
        detail::operation next;
        next.write = std::make_shared<detail::written>();
        next.write->name = name_;
        next.write->type = type_;
        next.write->kind = kind_;
        next.write->cells = static_cast<const char *>(cells);
        next.write->count = bytes / kind_.bytes;
        next.write->path = "datasets/" + name_;
        queue_->push(std::move(next));
    }

private:
    std::string name_;
    std::string type_;
    detail::element kind_;
    std::shared_ptr<detail::queue> queue_;
};

} // namespace staging

#endif
