#!/bin/sh
# Small files made, read and removed: natively on a slow durable tier, on a local disk and on tmpfs, and by Terrace file by file and by whole
# directories. Builds what is missing, measures, prints tables and writes benchmarks/results/small-files.{json,md}. Options are compare.py's
# (`--rounds 7`, `--count 1000`, `--dry`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
for program in cc python3 cargo umount; do
    command -v "$program" >/dev/null || { echo "small-files: \`$program\` is not installed; please install it" >&2; exit 1; }
done
cd "$repository"
. benchmarks/measured.sh
python3 "$here/compare.py" --terrace "$measured/terrace" --slowfs "$built/terrace-slowfs" "$@"
