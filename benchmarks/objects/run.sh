#!/bin/bash
# Measures objects beside memcpy and h5py, on one tier in memory. Prints JSON lines; needs a release build.
# Usage: benchmarks/objects/run.sh [DIRECTORY FOR THE ROOT, on the durable storage]
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
root=$(mktemp -d "${1:-/var/tmp}/terrace-objects-XXXXXX")
tier=$(mktemp -d /dev/shm/terrace-objects-XXXXXX)
trap 'kill $agent 2>/dev/null; wait $agent 2>/dev/null; rm -rf "$root" "$tier"' EXIT
"$target/terrace" serve --quiet --root "$root" --tier "ram=$tier:4GiB" --state "$root/.state" --runtime "$tier/run" \
    --flush '!**' > "$tier/index" &
agent=$!
for _ in $(seq 100); do [ -s "$tier/index" ] && break; sleep 0.1; done
index=$(sed 's/^export TERRACE_INDEX=//' "$tier/index")
"$target/examples/measure" "$index" 1
"$target/examples/measure" "$index" 2
if python3 -c 'import h5py' 2>/dev/null; then
    python3 "$here/benchmarks/objects/hdf5.py" "$tier" "$root"
else
    echo '{"h5py": "not installed"}'
fi
