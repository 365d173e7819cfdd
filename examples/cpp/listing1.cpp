// Listing 1 of "In-transit analysis with SAVIME and libstaging": a simulation that stages a dataset and has it loaded.
//
//   c++ -std=c++11 listing1.cpp $(pkg-config --cflags --libs terrace) -pthread -o listing1
//   terrace serve --listen 127.0.0.1:3221 --token-file token & TERRACE_TOKEN_FILE=token ./listing1 127.0.0.1:3221
//
// Written for libstaging; only the include is another one.
#include <terrace/staging.hpp>

#include <iostream>
#include <vector>

int main(int argc, char *argv[]) {
    if (argc < 2) {
        std::cerr << "usage: " << argv[0] << " ADDRESS:PORT [THREADS]\n";
        return 1;
    }

    constexpr std::size_t N = 1000;
    std::vector<double> v(N * N);
    for (std::size_t i = 0; i < v.size(); ++i) {
        v[i] = i * 0.5;
    }

    staging::server st{argv[1], argc > 2 ? std::stoul(argv[2]) : 2};

    st.run_savime("create_tar(\"grid\", \"*\", \"implicit,x,int,0,999,1 | implicit,y,int,0,999,1\", \"a,double\");");

    staging::dataset ds{"D", "double", st};
    ds.write((char *)v.data(), v.size() * sizeof(double));
    st.sync();

    st.run_savime("load_subtar(\"grid\", \"ordered,x,0,999 | ordered,y,0,999\", \"a,D\");");
    st.run_savime("drop_dataset(\"D\");");
}
