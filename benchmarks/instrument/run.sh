#!/usr/bin/env bash
# Compares `terrace bench` with fio and with a bare loop of pwrite, and measures how closely workers start.
# Arguments go to compare.py (--rounds, --directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
needs="fio cc" packages="fio, gcc"
. benchmarks/instrument/head.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -o "$work/pwrite" benchmarks/instrument/pwrite.c
python3 benchmarks/instrument/compare.py --pwrite "$work/pwrite" "$@"
