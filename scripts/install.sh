#!/usr/bin/env bash
# Installs what `make build` made: scripts/install.sh PREFIX (DESTDIR is put before it, for packages).
#
#   bin/terrace, terrace-*     lib/terrace/   libraries that `terrace run` preloads
#   lib/libterrace.so           include/       terrace.h and the Fortran module terrace.f90
#   lib/pkgconfig/terrace.pc    so that `pkg-config --cflags --libs terrace` says how to use them
#   lib/cmake/Terrace/          so that `find_package(Terrace)` finds them
#   share/                      man pages, completions for bash, zsh and fish, module files for Lmod and Environment Modules
#
# What is installed may be moved: everything finds its neighbours by where it lies.
set -euo pipefail
prefix=${1:?usage: scripts/install.sh PREFIX}
cd "$(dirname "$0")/.."
built=${TERRACE_BUILT:-${CARGO_TARGET_DIR:-target}/release}
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
programs=(terrace terrace-bench terrace-predict terrace-stage terrace-web)
# The SQL engine is larger than all the rest: `make dist` has it in a package of its own.
[ "${TERRACE_WITHOUT_SQL:-}" ] || programs+=(terrace-query)

for file in "${programs[@]}" libterrace_intercept.so libterrace_cfitsio.so hdf5/libterrace_hdf5.so libterrace.so; do
    if [ ! -e "$built/$file" ]; then
        printf 'install: %s is not built\nhint: make build\n' "$built/$file" >&2
        exit 1
    fi
done
install -D -m 755 -t "$to/bin" "${programs[@]/#/$built/}"
abi=$(sed -n 's/^const ABI: &str = "\(.*\)";/\1/p' crates/capi/build.rs)
install -D -m 755 "$built/libterrace.so" "$to/lib/libterrace.so.$abi"
ln -sfn "libterrace.so.$abi" "$to/lib/libterrace.so"
install -D -m 755 -t "$to/lib/terrace" "$built/libterrace_intercept.so" "$built/libterrace_cfitsio.so"
# HDF5 loads all that lies in a directory of plug-ins.
install -D -m 755 -t "$to/lib/terrace/hdf5" "$built/hdf5/libterrace_hdf5.so"
# Slurm's plugin is built where Slurm's headers are.
[ ! -e "$built/spank_terrace.so" ] || install -D -m 755 -t "$to/lib/terrace" "$built/spank_terrace.so"
install -D -m 644 -t "$to/include" crates/capi/include/terrace.h crates/capi/fortran/terrace.f90 \
    crates/capi/fortran/terrace_c.f90
install -D -m 644 -t "$to/include/terrace" crates/capi/include/terrace/{staging,terrace}.hpp
install -D -m 644 -t "$to/lib/cmake/Terrace" crates/capi/cmake/TerraceConfig.cmake
sed -e "s|@VERSION@|$version|" crates/capi/cmake/TerraceConfigVersion.cmake.in >"$to/lib/cmake/Terrace/TerraceConfigVersion.cmake"
mkdir -p "$to/lib/pkgconfig" "$to/share/modulefiles/terrace"
sed -e "s|@VERSION@|$version|" crates/capi/terrace.pc.in >"$to/lib/pkgconfig/terrace.pc"
sed -e "s|@VERSION@|$version|" packaging/terrace.lua >"$to/share/modulefiles/terrace/$version.lua"
sed -e "s|@VERSION@|$version|" packaging/terrace.tcl >"$to/share/modulefiles/terrace/$version"

"$built/terrace" man-pages "$to/share/man/man1"
completions() {
    mkdir -p "$to/share/$(dirname "$2")"
    "$built/terrace" completions "$1" >"$to/share/$2"
}
completions bash bash-completion/completions/terrace
completions zsh zsh/site-functions/_terrace
completions fish fish/vendor_completions.d/terrace.fish
