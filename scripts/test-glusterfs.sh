#!/usr/bin/env bash
# Runs tests of files with all roots on a real distributed file system: a GlusterFS of four bricks, by `pfs-testbed`. Needs root.
#
#   scripts/test-glusterfs.sh                 those that pass there (about four minutes)
#   scripts/test-glusterfs.sh FILTER…         tests whose names have one of these in them
#
# Left out is what that file system does not do for any program: RENAME_EXCHANGE, access lists, a name that is there at every moment while another
# file takes it, attributes that all bricks agree on; what takes too long there; and what semantics.md names (Limits). With
# TERRACE_TESTS_SELF_CHECK=1 both sides of a comparison run natively, which tells the one from the other.
set -euo pipefail
cd "$(dirname "$0")/.."
testbed=$(realpath -m "${PFS_TESTBED:-../shared/pfs-testbed/pfs-testbed}")
if [[ $(id -u) != 0 || ! -x $testbed ]]; then
    echo "SKIPPED: tests on a GlusterFS need root and \`pfs-testbed\` (at $testbed; set PFS_TESTBED to where it is)." >&2
    exit 0
fi
filters=("$@")
if ((!$#)); then
    filters=(room:: small_files:: locks:: early:: crash:: predecessors:: placed_full:: programs::
        --skip attributes_and_access_lists --skip tar_packs --skip rsync_mirrors --skip find_walks --skip git_clones --skip du_does
        --skip a_million_stats --skip the_server_forgets)
fi
program=$(cargo test --release --workspace --exclude terrace-intercept --exclude terrace-python --test system --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
program=$(realpath "$program")
directory=$(mktemp -d /tmp/terrace-glusterfs.XXXXXX)
trap '"$testbed" down --dir "$directory"; rm -rf "$directory"' EXIT
"$testbed" up --dir "$directory" --nodes 1 --tmpfs 1024
# The tests' durable directories are made in /var/tmp.
"$testbed" exec --dir "$directory" 0 -- unshare -m bash -euc '
    mkdir -p "$PFS_DIR/tmp"; chmod 1777 "$PFS_DIR/tmp"
    mount --make-rprivate /; mount --bind "$PFS_DIR/tmp" /var/tmp
    cd "$1/tests"; shift
    exec "$@"' bash "$PWD" "$program" "${filters[@]}" --test-threads 3
