#!/usr/bin/env bash
# The paper's 14 runs, on local disk and with 1 ms added to each request (nine minutes, most of them spent waiting).
# Arguments go to paper.py (--part local|slow, --replications, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in mpicc mpirun; do
    command -v "$program" >/dev/null || { echo "benchmarks/instrument needs $program (Debian: libopenmpi-dev, openmpi-bin)" >&2; exit 1; }
done
[ "${1:-}" = --no-build ] && shift || cargo build --release -p terrace-bench
python3 benchmarks/instrument/paper.py "$@"
