// What libstaging got wrong, one claim for each argument; prints what the test then compares.
#include <terrace/staging.hpp>

#include <algorithm>
#include <dirent.h>
#include <iostream>
#include <vector>

static int tasks() {
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    while (dirent *entry = readdir(directory)) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

/* Writes a dataset and overwrites the memory as soon as sync has returned. */
static void overwrite(staging::server &st, int times) {
    std::vector<std::int64_t> cells(64);
    for (int number = 0; number < times; ++number) {
        std::fill(cells.begin(), cells.end(), number);
        staging::dataset ds{"D" + std::to_string(number), "long", st};
        ds.write((char *)cells.data(), cells.size() * sizeof cells[0]);
        st.sync();
        std::fill(cells.begin(), cells.end(), -1);
    }
}

/* Commands right behind the writes that they need, without a sync. */
static void ordered(staging::server &st, int times) {
    st.run_savime("create_tar('steps', '*', 'implicit,step,int,0,*,1 | implicit,x,int,0,65535,1', 'v,int')");
    std::vector<std::vector<std::int32_t>> kept;
    for (int step = 0; step < times; ++step) {
        kept.emplace_back(65536, step);
        staging::dataset ds{"step", "int", st};
        ds.write((char *)kept.back().data(), kept.back().size() * sizeof(std::int32_t));
        const std::string at = std::to_string(step);
        st.run_savime("load_subtar('steps', 'ordered,step," + at + "," + at + " | ordered,x,0,65535', 'v,step')");
        st.run_savime("drop_dataset('step')");
    }
    st.sync();
    std::cout << st.run_savime_sync("aggregate(steps, sum, v, s, step)");
}

static void failures(staging::server &st) {
    std::vector<double> cells(10, 1.5);
    staging::dataset first{"twice", "double", st};
    first.write((char *)cells.data(), 80);
    staging::dataset second{"twice", "double", st};
    second.write((char *)cells.data(), 80);
    st.run_savime("drop_tar('nothing')");
    try {
        st.sync();
        std::cout << "no error\n";
    } catch (const staging::error &error) {
        std::cout << error.what() << "\n";
    }
    st.sync();
    std::cout << "then none\n";
    try {
        st.run_savime_sync("scan(nothing)");
    } catch (const staging::error &error) {
        std::cout << error.what() << "\n";
    }
    try {
        staging::dataset{"odd", "double", st}.write((char *)cells.data(), 79);
    } catch (const staging::error &error) {
        std::cout << error.what() << "\n";
    }
}

/* One large dataset, in parts by several threads, and vectors. */
static void large(staging::server &st) {
    std::vector<double> cells((40u << 20) / 8);
    for (std::size_t i = 0; i < cells.size(); ++i) {
        cells[i] = static_cast<double>(i);
    }
    staging::dataset ds{"large", "double", st};
    ds.write((char *)cells.data(), cells.size() * 8);
    std::vector<std::int32_t> pairs = {1, 10, 2, 20, 3, 30};
    staging::dataset vectors{"pairs", "int:2", st};
    vectors.write((char *)pairs.data(), pairs.size() * 4);
    st.sync();
    st.run_savime("create_tar('l', '*', 'implicit,i,long,0," + std::to_string(cells.size() - 1) + ",1', 'v,double')");
    st.run_savime("load_subtar('l', 'ordered,i,0," + std::to_string(cells.size() - 1) + "', 'v,large')");
    st.run_savime("create_tar('p', '*', 'implicit,i,int,0,2,1', 'v,int:2'); load_subtar('p', 'ordered,i,0,2', 'v,pairs')");
    st.sync();
    std::cout << st.run_savime_sync("aggregate(where(l, v = i), count, v, n)") << st.run_savime_sync("reorient(p, i)");
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const std::string claim = argv[1];
    try {
        const int before = tasks();
        staging::server st{argv[2], argc > 3 ? std::stoul(argv[3]) : 1};
        const int threads = tasks() - before;
        if (claim == "overwrite") overwrite(st, std::stoi(argv[4]));
        if (claim == "ordered") ordered(st, std::stoi(argv[4]));
        if (claim == "failures") failures(st);
        if (claim == "large") large(st);
        if (claim == "threads") std::cout << threads << "\n";
    } catch (const staging::error &error) {
        std::cout << "refused: " << error.what() << "\n";
    }
}
