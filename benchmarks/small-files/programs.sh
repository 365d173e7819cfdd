#!/bin/sh
# Everyday programs of small files on a slow durable tier: natively, under Terrace in each way that programs.py has, and natively on tmpfs,
# by turns. Builds what is missing, measures, prints a table and writes benchmarks/results/small-files-programs.{json,md}. Options are
# programs.py's (`--rounds 7`, `--only make`, `--dry`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
for program in cc make python3 cargo umount; do
    command -v "$program" >/dev/null || { echo "small-files: \`$program\` is not installed; please install it" >&2; exit 1; }
done
cd "$repository"
. benchmarks/measured.sh
python3 "$here/programs.py" --terrace "$measured/terrace" --slowfs "$built/terrace-slowfs" "$@"
