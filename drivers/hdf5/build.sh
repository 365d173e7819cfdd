#!/bin/sh
# Builds libterrace_hdf5.so into a directory of its own, because HDF5 loads all that lies there: drivers/hdf5/build.sh target/release
# makes target/release/hdf5/libterrace_hdf5.so. It links to no HDF5.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh DIRECTORY}/hdf5
mkdir -p "$out"
# Into a name of its own first, so that no process loads half a library; HDF5 takes names that begin with `lib` only.
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I "$here/../../crates/capi/include" \
    -Wl,-soname,libterrace_hdf5.so -Wl,-z,defs -Wl,--version-script="$here/exports.map" \
    -o "$out/.terrace_hdf5.$$" "$here"/plugin.c "$here"/session.c "$here"/connector.c "$here"/mirror.c \
    "$here"/handles.c "$here"/datasets.c "$here"/changes.c "$here"/types.c "$here"/attributes.c -ldl -lpthread
mv "$out/.terrace_hdf5.$$" "$out/libterrace_hdf5.so"
