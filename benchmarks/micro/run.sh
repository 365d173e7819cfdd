#!/bin/sh
# Compares file operations natively and under `terrace run`: builds what is missing, measures, prints a table and writes
# benchmarks/results/micro.{json,md}. Options are compare.py's (`--rounds 31`, `--only stat`, `--no-write`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
for program in cc python3 git tar cargo; do
    command -v "$program" >/dev/null || { echo "micro: \`$program\` is not installed; please install it" >&2; exit 1; }
done
mkdir -p "$repository/build"
cc -O2 -Wall -Wextra -o "$repository/build/micro-worker" "$here/worker.c"
echo 'int nothing;' | cc -shared -x c -o "$repository/build/micro-empty.so" -
cd "$repository"
. benchmarks/measured.sh
python3 "$here/compare.py" --worker "$repository/build/micro-worker" --empty "$repository/build/micro-empty.so" --terrace "$measured/terrace" "$@"
