#!/bin/sh
# Builds the plugin for one ADIOS2, because C++ programs fit the library that they were built with: drivers/adios2/build.sh ADIOS2 LIBRARIES OUT
#
#   ADIOS2     where its libraries lie, with include/ there or beside: in a Python environment …/site-packages/adios2
#   LIBRARIES  the directory of libterrace.so    OUT  gets libterrace_adios2.so
set -eu
here=$(cd "$(dirname "$0")" && pwd)
usage='usage: build.sh ADIOS2 LIBRARIES OUT'
adios2=$(cd "${1:?$usage}" && pwd)
libraries=$(cd "${2:?$usage}" && pwd)
out=${3:?$usage}
include=$adios2/include
[ -d "$include" ] || include=$adios2/../include
library=$(cd "$adios2" && ls libadios2_cxx.so.*.*.* libadios2_cxx.so 2>/dev/null | head -n 1)
[ -n "$library" ] && [ -e "$include/adios2/plugin/PluginEngineInterface.h" ] ||
    { printf 'adios2: %s has no libadios2_cxx.so, or no headers of 2.12 beside it\n' "$adios2" >&2; exit 1; }
mkdir -p "$out"
${CXX:-c++} -std=c++17 -O2 -g -Wall -Wextra -Wno-unused-parameter -fPIC -shared -fvisibility=hidden -I "$here/../../crates/capi/include" -isystem "$include" \
    -Wl,-soname,libterrace_adios2.so -Wl,-rpath,"$adios2:$libraries" -o "$out/.terrace_adios2.$$" "$here/engine.cpp" \
    "$adios2/$library" "$libraries/libterrace.so"
mv "$out/.terrace_adios2.$$" "$out/libterrace_adios2.so"
