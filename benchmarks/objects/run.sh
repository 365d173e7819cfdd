#!/usr/bin/env bash
# Measures objects beside memcpy between the same buffers and beside h5py, by turns: builds what is missing, prints tables and
# writes benchmarks/results/objects.{md,json}. Options are compare.py's (--rounds 9, --base /var/tmp, --no-write).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
cd "$repository"
. benchmarks/measured.sh
[ -n "${TERRACE:-}" ] || cargo build --release -p terrace-client --example measure
# Any of our environments that has h5py; else it is put into the benchmarks' own.
for python in build/python-venv/bin/python build/venv/bin/python; do
    if [ -x "$python" ] && "$python" -c 'import h5py' 2>/dev/null; then
        found=$python
        break
    fi
done
if [ -z "${found:-}" ]; then
    scripts/setup.sh bench
    . scripts/environment.sh
    pip_install build/venv/bin/python "$(grep '^h5py==' python/requirements.txt)"
    found=build/venv/bin/python
fi
cp "$built/examples/measure" "$measured/"
"$found" "$here/compare.py" --binaries "$measured" "$@"
