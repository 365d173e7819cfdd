#!/bin/sh
# Compares programs natively, under the default door and under the supervisor alone: builds what is missing, measures, prints
# tables and writes benchmarks/results/supervise.{json,md}. Options are compare.py's (`--rounds 11`, `--turns 4000`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
for program in cc python3 git cargo taskset; do
    command -v "$program" >/dev/null || { echo "supervise: \`$program\` is not installed; please install it" >&2; exit 1; }
done
mkdir -p "$repository/build"
cc -O2 -Wall -o "$repository/build/supervise-dynamic" "$here/worker.c"
cc -O2 -Wall -o "$repository/build/supervise-bare" "$here/bare.c"
cc -O2 -Wall -static -o "$repository/build/supervise-static" "$here/worker.c"
cd "$repository"
. benchmarks/measured.sh
python3 "$here/compare.py" --terrace "$measured/terrace" "$@"
