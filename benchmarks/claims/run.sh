#!/usr/bin/env bash
# The claims of docs/reference/claims.md that no other benchmark repeats: the interfaces that IORE compares. Writes results/claims.json and
# results/claims.md. Arguments go to claims.py (--replications, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --release -p terrace-bench
python3 benchmarks/claims/claims.py "$@"
