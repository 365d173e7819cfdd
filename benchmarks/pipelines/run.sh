#!/bin/sh
# Compares programs of many processes natively, by the preload library alone and by the default (library and supervisor), by turns:
# builds what is missing, measures, prints a table and writes benchmarks/results/pipelines.{json,md}. Options are compare.py's
# (`--rounds 7`, `--minutes 11`, `--only make`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
command -v python3 >/dev/null || { echo "pipelines: \`python3\` is not installed; please install it" >&2; exit 1; }
cd "$repository"
. benchmarks/measured.sh
python3 "$here/compare.py" --terrace "$measured/terrace" "$@"
