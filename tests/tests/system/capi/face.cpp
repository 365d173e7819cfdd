/* Claims about terrace.hpp: what it returns, what it refuses, and that handles close themselves. */
#include <terrace/terrace.hpp>

#include <array>
#include <iostream>
#include <numeric>

static int failures = 0;

#define CLAIM(claim)                                                                                                                      \
    do {                                                                                                                                  \
        if (!(claim)) {                                                                                                                   \
            ++failures;                                                                                                                   \
            std::cout << "line " << __LINE__ << ": " #claim "\n";                                                                         \
        }                                                                                                                                 \
    } while (0)

/* The code that `function` throws; TERRACE_OK if it throws none. */
template <class Function> static terrace_code thrown(Function function) {
    try {
        function();
        return TERRACE_OK;
    } catch (const terrace::error &error) {
        if (std::string(error.what()).empty()) {
            std::cout << "an error without text\n";
            ++failures;
        }
        return error.code();
    }
}

static void arrays(terrace::session &session) {
    terrace::array array = session.create<std::int32_t>("c/a", {4, 6});
    std::vector<std::int32_t> cells(24);
    std::iota(cells.begin(), cells.end(), 0);
    array.put(cells);
    CLAIM(array.type() == "int32" && array.shape() == (terrace::extents{4, 6}));
    const auto part = array.get<std::int32_t>({{1, 0}, {2, 3}, {2, 2}});
    CLAIM(part(0, 0) == 6 && part(0, 2) == 10 && part(1, 1) == 20 && part.size() == 6);
    std::array<std::int32_t, 6> row{};
    array.get_into(row, {{2, 0}, {1, 6}});
    CLAIM(row[0] == 12 && row[5] == 17);

    CLAIM(thrown([&] { array.put(std::vector<double>(24)); }) == TERRACE_WRONG_KIND);
    CLAIM(thrown([&] { array.put(std::vector<std::int32_t>(23)); }) == TERRACE_INVALID);
    CLAIM(thrown([&] { array.get<std::int32_t>({{0, 0}, {5, 6}}); }) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(thrown([&] { array.get<std::int32_t>({{0}, {4}}); }) != TERRACE_OK);
    CLAIM(thrown([&] { part(2, 0); }) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(thrown([&] { part(1); }) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(thrown([] { terrace::region({0, 0}, {1}); }) == TERRACE_INVALID);
    CLAIM(thrown([] { terrace::region({0}, {1}, {1, 1}); }) == TERRACE_INVALID);
    CLAIM(thrown([] { terrace::cell_count({1ull << 40, 1ull << 40}); }) == TERRACE_INVALID);
    CLAIM(thrown([&] { session.create<double>("c/none", {}); }) == TERRACE_INVALID);
    CLAIM(thrown([&] { session.create<double>("c/a", {4, 6}); }) == TERRACE_EXISTS);
    CLAIM(thrown([&] { session.open_array("c/missing"); }) == TERRACE_NOT_FOUND);
    terrace::array_options wrong;
    wrong.chunks = {2};
    CLAIM(thrown([&] { session.create<double>("c/none", {2, 2}, TERRACE_NEW, wrong); }) == TERRACE_INVALID);

    /* One that is moved from is empty, and says so. */
    terrace::array moved = std::move(array);
    CLAIM(moved.shape()[1] == 6);
    CLAIM(thrown([&] { array.shape(); }) == TERRACE_BAD_HANDLE);
    moved.close();
    CLAIM(thrown([&] { moved.shape(); }) == TERRACE_BAD_HANDLE);

    terrace::array flags = session.create<bool>("c/flags", {3});
    const bool three[3] = {true, false, true};
    flags.put(three);
    const auto read = flags.get<bool>();
    CLAIM(read(0) && !read(1) && read(2));
    terrace::array waves = session.create<std::complex<float>>("c/waves", {2});
    waves.put(std::vector<std::complex<float>>{{1, 2}, {3, 4}});
    CLAIM(waves.type() == "complex64" && waves.get<std::complex<float>>()(1) == std::complex<float>(3, 4));
}

static void transfers_and_locks(terrace::session &session) {
    terrace::array array = session.open_array("c/a", true);
    std::vector<std::int32_t> cells(24, 7), got(24);
    {
        /* Not waited for: its end waits. */
        terrace::transfer put = array.putting(cells, array.whole());
        put.start();
    }
    terrace::transfer get = array.getting(got, array.whole());
    get.start();
    CLAIM(get.wait());
    CLAIM(get.is_done() && got == cells);
    {
        auto held = array.try_lock({{0, 0}, {2, 6}}, TERRACE_WRITE);
        CLAIM(held.has_value());
        CLAIM(!array.try_lock({{1, 0}, {2, 6}}, TERRACE_READ).has_value());
        CLAIM(array.try_lock({{2, 0}, {2, 6}}, TERRACE_READ).has_value());
    }
    CLAIM(array.try_lock({{0, 0}, {4, 6}}, TERRACE_WRITE).has_value());
}

static void names_bytes_and_tags(terrace::session &session) {
    {
        terrace::bytes text = session.create_bytes("c/text");
        CLAIM(text.append("Hello") == 0 && text.append(", plate") == 5);
        CLAIM(text.length() == 12);
    }
    char read[20];
    CLAIM(session.open_bytes("c/text").read(7, read, sizeof read) == 5 && std::string(read, 5) == "plate");
    CLAIM(thrown([&] { session.open_bytes("c/text").append("x"); }) == TERRACE_WRONG_KIND);

    std::string names;
    for (const terrace::entry &entry : session.list("c")) {
        names += entry.name + (entry.kind == TERRACE_ARRAY ? "* " : " ");
    }
    CLAIM(names == "a* flags* text waves* ");
    CLAIM(session.find("c/text")->bytes == 12 && !session.find("c/nothing"));
    CLAIM(!session.wait_for("c/nothing", 0.01) && session.wait_for("c/text", 1));
    CLAIM(thrown([&] { session.list("c/nothing"); }) == TERRACE_NOT_FOUND);

    session.set_tag("c/a", "text", "a literal");
    session.set_tag("c/a", "truth", true);
    session.set_tag("c/a", "whole", std::int64_t{-3});
    session.set_tag("c/a", "real", 2.5);
    session.set_tag("c/a", "many", std::vector<double>{1, 2});
    const auto tags = session.tags("c/a");
    CLAIM(tags.size() == 5 && tags[0].first == "many" && tags[0].second == terrace::tag(std::vector<double>{1, 2}));
    CLAIM(tags[1].second == terrace::tag(2.5) && tags[2].second == terrace::tag(std::string("a literal")));
    CLAIM(tags[3].second == terrace::tag(true) && tags[4].second == terrace::tag(std::int64_t{-3}));
    CLAIM(thrown([&] { session.set_tag("c/a", "cut", std::string("a\0b", 3)); }) == TERRACE_INVALID);
    session.remove_tag("c/a", "many");
    CLAIM(session.tags("c/a").size() == 4);
    session.rename("c/waves", "c/wind");
    session.remove("c/flags");
    CLAIM(session.find("c/wind") && !session.find("c/flags") && !session.find("c/waves"));
}

int main() {
    CLAIM(thrown([] { terrace::session("/nowhere/at/all"); }) != TERRACE_OK);
    terrace::session session;
    arrays(session);
    transfers_and_locks(session);
    names_bytes_and_tags(session);
    session.close();
    CLAIM(thrown([&] { session.list(); }) == TERRACE_BAD_HANDLE);
    std::cout << (failures ? "" : "all claims hold\n");
    return failures != 0;
}
