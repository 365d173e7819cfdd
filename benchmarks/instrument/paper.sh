#!/usr/bin/env bash
# The paper's 14 runs, on local disk and with 1 ms added to each request (nine minutes, most of them spent waiting).
# Arguments go to paper.py (--part local|slow, --replications, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
needs="mpicc mpirun" packages="libopenmpi-dev, openmpi-bin"
. benchmarks/instrument/head.sh
python3 benchmarks/instrument/paper.py "$@"
