#!/bin/bash
# Reductions by one, two and four agents, each on a processor of its own: what sharing a query's cells out gains, and how many bytes go
# between nodes. Writes benchmarks/results/queries-nodes.{json,md}; needs `make build python` and 3 GiB of memory.
# Usage: benchmarks/queries/nodes.sh [--mib 256] [--rounds 7] [--agents 1,2,4] [--no-write]
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/python-venv/bin/python benchmarks/queries/nodes.py "$@"
