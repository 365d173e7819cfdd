#!/usr/bin/env bash
# Measures staging side by side: memcpy, a plain TCP stream, one that is relayed, scp, ADIOS2 SST, and Terrace to memory and to disk, on this node, by TCP,
# forwarded, and through an SSH tunnel; then a simulation's own time with staging and without. Builds what is missing, prints a
# table and writes benchmarks/results/staging.{md,json}. Options are compare.py's; the whole of it takes an hour:
#   --blocks 1,16,256   MiB   --sizes 0.25,1,4   GiB   --threads 1,4   --rounds 3   --no-write
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
. benchmarks/measured.sh
[ -n "${TERRACE:-}" ] || cargo build --release -p terrace-client --example staging
cp "$built/examples/staging" "$measured/staging"
venv=build/staging-venv
. scripts/environment.sh
environment "$venv" "$here/requirements.txt" /usr/bin/python3 ||
    echo "SKIPPED: ADIOS2 SST: the package adios2 can't be installed" >&2
"$venv/bin/python" "$here/compare.py" --binaries "$measured" "$@"
