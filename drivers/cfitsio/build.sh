#!/bin/sh
# Builds libterrace_cfitsio.so into a directory: drivers/cfitsio/build.sh target/release
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh DIRECTORY}
mkdir -p "$out"
# Only what a program meets by design is exported; into a name of its own first, so that no process loads half a library.
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I "$here/../../crates/capi/include" \
    -Wl,-soname,libterrace_cfitsio.so -Wl,-z,defs -Wl,--version-script="$here/exports.map" \
    -o "$out/.libterrace_cfitsio.so.$$" "$here/driver.c" -ldl -lpthread
mv "$out/.libterrace_cfitsio.so.$$" "$out/libterrace_cfitsio.so"
