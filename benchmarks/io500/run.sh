#!/usr/bin/env bash
# The io500's phases by `terrace bench io500` on a disk's directory; writes results/io500.json and results/io500.md.
# Arguments go to io500.py (--stonewall, --workers, --rounds, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --release -p terrace-bench
python3 benchmarks/io500/io500.py "$@"
