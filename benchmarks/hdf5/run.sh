#!/usr/bin/env bash
# Measures how long an unmodified h5py program takes to write 256 MB: natively, in the tiers as a file, and by the connector; prints a table
# and writes benchmarks/results/hdf5.{md,json}. Options are compare.py's (--rounds 7, --base /var/tmp, --no-write). After `make build python`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
. benchmarks/measured.sh
[ -n "${TERRACE:-}" ] || { make build-files && cargo build --release -p terrace-capi -p terrace-slowfs && drivers/hdf5/build.sh target/release; }
mkdir -p "$measured/hdf5"
cp "$built/terrace-slowfs" "$built/libterrace.so" "$measured/"
cp "$built/hdf5/libterrace_hdf5.so" "$measured/hdf5/"
build/python-venv/bin/python "$here/compare.py" --binaries "$measured" "$@"
