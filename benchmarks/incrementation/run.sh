#!/bin/sh
# The incrementation experiments on a distributed file system: the durable tier alone against Terrace, with the model's
# bounds. Writes benchmarks/results/incrementation.{json,csv,md,png}. About 20 minutes. Needs root (network namespaces).
# Options are experiment.py's (`--experiment disks`, `--point 5`, `--repetitions 1`, `--keep-up`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
testbed=${PFS_TESTBED:-$repository/../shared/pfs-testbed/pfs-testbed}
if [ ! -x "$testbed" ]; then
    echo "SKIPPED: the incrementation benchmark needs \`pfs-testbed\` (a distributed file system on one machine)." >&2
    echo "         It is not at $testbed; set PFS_TESTBED to where it is." >&2
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "SKIPPED: the incrementation benchmark makes network namespaces and mounts, which needs root." >&2
    exit 0
fi
missing=
for pair in gcc:cc glusterfs-server:glusterfsd glusterfs-client:glusterfs xfsprogs:mkfs.xfs iproute2:tc python3:python3; do
    command -v "${pair#*:}" >/dev/null || missing="$missing ${pair%%:*}"
done
if [ -n "$missing" ]; then
    apt-get update -q && apt-get install -qy --no-install-recommends $missing
fi
mkdir -p "$repository/build"
cc -O3 -march=native -Wall -Wextra -o "$repository/build/incrementation" "$here/incrementation.c"
cd "$repository"
cargo build --release -p terrace-model --example bounds
. benchmarks/measured.sh
python3 "$here/experiment.py" --testbed "$testbed" --incrementation "$repository/build/incrementation" \
    --terrace "$measured/terrace" --model "$repository/target/release/examples/bounds" "$@"
for option in "$@"; do
    case $option in --experiment* | --point*) exit 0 ;; esac
done
for python in "$repository/build/venv/bin/python" python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then
        "$python" "$here/plot.py"
        exit
    fi
done
echo "SKIPPED: the picture needs matplotlib (Debian: apt-get install python3-matplotlib)." >&2
