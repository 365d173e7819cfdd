#!/usr/bin/env bash
# Builds a parallel HDF5 that knows connectors into build/parallel-hdf5, for one test (hdf5::parallel_…): Debian 12's is 1.10, which knows none.
# It takes minutes, so tests/setup.sh leaves it out. The source is in a crate that ships it, CMake is PyPI's: Debian 12's is too old for it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.10.4
build=$PWD/build/parallel-hdf5
[ ! -e "$build/.$version" ] || exit 0
rm -rf "$build"
mkdir -p "$build/crate/src"
printf '[package]\nname = "source"\n[workspace]\n[dependencies]\nhdf5-metno-src = "=%s"\n' "$version" >"$build/crate/Cargo.toml"
touch "$build/crate/src/lib.rs"
source=$(cargo metadata --quiet --format-version 1 --manifest-path "$build/crate/Cargo.toml" |
    python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "hdf5-metno-src"))')
python3 -m venv "$build/venv"
"$build/venv/bin/pip" install --quiet --disable-pip-version-check 'cmake==3.31.10'
"$build/venv/bin/cmake" -S "$(dirname "$source")/ext/hdf5" -B "$build/made" -DCMAKE_INSTALL_PREFIX="$build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS=-O1 -DMPI_C_COMPILER=mpicc.openmpi -DHDF5_ENABLE_PARALLEL=ON -DBUILD_SHARED_LIBS=ON -DBUILD_STATIC_LIBS=OFF \
    -DBUILD_TESTING=OFF -DHDF5_BUILD_EXAMPLES=OFF -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_HL_LIB=OFF -DHDF5_BUILD_UTILS=OFF \
    -DHDF5_ENABLE_Z_LIB_SUPPORT=OFF -DHDF5_ENABLE_SZIP_SUPPORT=OFF >"$build/log"
"$build/venv/bin/cmake" --build "$build/made" --parallel "$(nproc)" --target install >>"$build/log"
rm -rf "$build/made" "$build/venv" "$build/crate"
touch "$build/.$version"
