#!/usr/bin/env bash
# Compares `terrace bench` with fio and with a bare loop of pwrite, and measures how closely workers start.
# Arguments go to compare.py (--rounds, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in fio cc; do
    command -v "$program" >/dev/null || { echo "benchmarks/instrument needs $program (Debian: fio, gcc)" >&2; exit 1; }
done
[ "${1:-}" = --no-build ] && shift || cargo build --release -p terrace-bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -o "$work/pwrite" benchmarks/instrument/pwrite.c
python3 benchmarks/instrument/compare.py --pwrite "$work/pwrite" "$@"
