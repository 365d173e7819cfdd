#!/bin/bash
# Queries on a grid of float64 by NumPy, xarray with Dask, DuckDB, DataFusion over Parquet and Terrace, side by
# side in one run. Writes benchmarks/results/queries.{json,md}; needs a release build and 8 GiB of memory, for 4 GiB a field 24.
# Usage: benchmarks/queries/run.sh [--size 8MiB|128MiB|385MiB|4GiB] [--quick] [--terrace-only]
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
venv=$here/build/queries-venv
cd "$here"
. scripts/environment.sh
environment "$venv" benchmarks/queries/requirements.txt
wheel=("$here"/build/wheels/terrace-*.whl)
pip_install "$venv/bin/python" --no-deps --force-reinstall "${wheel[0]}"
root=$(mktemp -d /var/tmp/terrace-queries-XXXXXX)
tier=$(mktemp -d /dev/shm/terrace-queries-XXXXXX)
trap 'kill $agent 2>/dev/null; wait $agent 2>/dev/null; rm -rf "$root" "$tier"' EXIT
mkdir "$tier/ram"
"$target/terrace" serve --quiet --root "$root" --tier "ram=$tier/ram:9GiB" --state "$root/.state" --runtime "$tier/run" \
    --flush '!**' > "$tier/index" &
agent=$!
for _ in $(seq 200); do [ -s "$tier/index" ] && break; sleep 0.1; done
export TERRACE_INDEX=$(sed 's/^export TERRACE_INDEX=//' "$tier/index")
export TERRACE_QUERY=$target/terrace-query
"$venv/bin/python" "$here/benchmarks/queries/queries.py" "$tier" "$@"
