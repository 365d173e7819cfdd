#!/usr/bin/env bash
# The claims of docs/reference/claims.md that no other benchmark repeats: the interfaces that IORE compares, and what flushing beside a
# program costs it. Writes results/claims.{json,md} and results/claims-movers.{json,md}. Arguments go to claims.py (--replications,
# --directory); `run.sh movers` measures the second alone, with the options of movers.py (--rounds, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" != movers ]; then
    cargo build --quiet --release -p terrace-bench
    python3 benchmarks/claims/claims.py "$@"
    set -- movers
fi
shift
make build-files
python3 benchmarks/claims/movers.py "$@"
