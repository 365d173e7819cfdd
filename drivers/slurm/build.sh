#!/bin/sh
# Builds spank_terrace.so into a directory: drivers/slurm/build.sh target/release. Needs Slurm's headers (Debian: libslurm-dev).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh DIRECTORY}
mkdir -p "$out"
if ! echo '#include <slurm/spank.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
    echo "spank_terrace.so is not built: Slurm's headers are not installed (libslurm-dev)" >&2
    exit 0
fi
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -shared \
    -o "$out/.spank_terrace.so.$$" "$here/spank_terrace.c"
mv "$out/.spank_terrace.so.$$" "$out/spank_terrace.so"
