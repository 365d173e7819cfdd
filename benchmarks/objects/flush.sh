#!/usr/bin/env bash
# Measures how long staged arrays take to become durable, beside write and fsync of the same bytes, by turns; prints a table and writes
# benchmarks/results/objects-flush.{md,json}. Options are flush.py's (--rounds 7, --base /var/tmp, --no-write).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
. benchmarks/measured.sh
[ -n "${TERRACE:-}" ] || cargo build --release -p terrace-client --example flush -p terrace-slowfs
cp "$built/examples/flush" "$built/terrace-slowfs" "$measured/"
python3 "$here/flush.py" --binaries "$measured" --slowfs "$measured/terrace-slowfs" "$@"
