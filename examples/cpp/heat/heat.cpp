// Heat that spreads over a plate: each step is put while the next is computed; then the history is read.
//
//   cmake -S examples/cpp/heat -B build/heat -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build/heat
//   terrace run -- build/heat/heat
#include <terrace/terrace.hpp>

#include <iostream>
#include <vector>

int main() try {
    constexpr std::uint64_t steps = 20, rows = 64, columns = 48;
    terrace::session session;
    session.create_container("heat");
    terrace::array_options options;
    options.unlimited = {true, false, false};
    options.dimensions = {"step", "y", "x"};
    terrace::array temperature = session.create<double>("heat/temperature", {0, rows, columns}, TERRACE_NEW, options);
    session.set_tag("heat/temperature", "units", "K");
    session.set_tag("heat/temperature", "diffusivity", 0.2);

    // Two buffers: one is computed into while the other is on its way.
    std::vector<double> now(rows * columns, 300.0), next(now);
    now[rows / 2 * columns + columns / 2] = 1000.0;
    for (std::uint64_t step = 0; step < steps; ++step) {
        terrace::transfer put = temperature.putting(now, {{step, 0, 0}, {1, rows, columns}});
        put.start();
        next = now;
        for (std::uint64_t y = 1; y + 1 < rows; ++y) {
            for (std::uint64_t x = 1; x + 1 < columns; ++x) {
                const std::uint64_t at = y * columns + x;
                next[at] += 0.2 * (now[at - 1] + now[at + 1] + now[at - columns] + now[at + columns] - 4 * now[at]);
            }
        }
        put.wait();
        std::swap(now, next);
    }

    const terrace::extents shape = temperature.shape();
    std::cout << shape[0] << " steps of " << shape[1] << " x " << shape[2] << "\n";
    // Every fifth step of the plate's middle.
    const terrace::block<double> middle = temperature.get<double>({{0, rows / 2, columns / 2}, {4, 1, 1}, {5, 1, 1}});
    for (std::uint64_t step = 0; step < 4; ++step) {
        std::cout << "step " << 5 * step << ": " << middle(step, 0, 0) << " K\n";
    }
    // No heat is lost before it reaches the edge.
    const terrace::block<double> last = temperature.get<double>({{4, 0, 0}, {1, rows, columns}});
    double sum = 0;
    for (const double cell : last) {
        sum += cell - 300.0;
    }
    std::cout << "heat in step 4: " << sum << " K\n";
    return 0;
} catch (const terrace::error &error) {
    std::cerr << "heat: " << error.what() << "\n";
    return 1;
}
