#!/bin/sh
# Montage natively and by Terrace's doors, side by side, per step: builds what is missing, measures, prints a table and writes
# benchmarks/results/montage-PRESET.{json,md}. Options are compare.py's (--preset paper, --rounds 3, --ways …, --no-write).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
cd "$repository"
for program in mProjExec bc cc; do
    command -v "$program" >/dev/null || { echo "montage: \`$program\` is not installed; scripts/setup.sh bench gets it" >&2; exit 1; }
done
if [ ! -e ../shared/montage-kit/run_montage.sh ]; then
    echo "SKIPPED: the Montage kit (../shared/montage-kit) is not there"
    exit 0
fi
[ -x build/venv/bin/python ] || scripts/setup.sh bench
[ -n "${TERRACE:-}" ] || make build
exec build/venv/bin/python "$here/compare.py" --terrace "${TERRACE:-target/release/terrace}" "$@"
