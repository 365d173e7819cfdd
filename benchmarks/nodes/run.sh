#!/bin/sh
# Files of other nodes on a distributed file system: open and read of 4 KiB, 1 MiB and 1 GiB, stat of 10,000, creation by two nodes,
# a pipeline with each step on another node, packets when idle: the durable tier alone, Terrace, and a plain TCP stream by turns.
# Writes benchmarks/results/nodes.{json,md}. Needs root and `pfs-testbed`. Options are compare.py's (`--rounds 1 --largest 1048576`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
testbed=${PFS_TESTBED:-$repository/../shared/pfs-testbed/pfs-testbed}
if [ ! -x "$testbed" ] || [ "$(id -u)" != 0 ]; then
    echo "SKIPPED: the benchmark of nodes needs root and \`pfs-testbed\` (at $testbed; set PFS_TESTBED to where it is)." >&2
    exit 0
fi
for program in glusterfsd glusterfs tc python3; do
    command -v "$program" >/dev/null || { echo "SKIPPED: the benchmark of nodes needs \`$program\`." >&2; exit 0; }
done
cd "$repository"
. benchmarks/measured.sh
[ -x "$built/terrace-predict" ] || cargo build --release -p terrace-predict
cp "$built/terrace-predict" "$measured/"
python3 "$here/compare.py" --testbed "$testbed" --terrace "$measured/terrace" "$@"
