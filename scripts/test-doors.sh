#!/usr/bin/env bash
# Runs the conformance suites and the real programs with each way to reach programs: both, the preload library, the supervisor; and by a
# private mount, where one can be had.
#
#   scripts/test-doors.sh                all of them
#   scripts/test-doors.sh selected       what `make test` adds to its own run with both: a part of them, by each way alone
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()

# run DOOR FILTERS…: the system's tests whose names have one of these in them, by one door; what follows -- goes to the test program.
run() {
    local door=$1
    shift
    echo "== TERRACE_DOOR=$door: $*"
    # These wait for nothing but cores.
    env -u RUST_TEST_THREADS TERRACE_DOOR="$door" cargo test --release --no-fail-fast --workspace --exclude terrace-intercept --exclude terrace-python \
        --test system -- "$@" || failed+=("$door: $*")
}

case ${1:-all} in
    all)
        for door in both preload supervise; do
            run "$door" pjdfstest:: fsx:: programs::
        done
        # df names another mount: so `du_and_df` differs.
        run mount fsx::
        run mount programs:: --skip du_and_df
        run both matrix:: mount:: semantics::
        ;;
    selected)
        for door in preload supervise; do
            run "$door" pjdfstest::all_of_pjdfstest
            TERRACE_FSX_OPERATIONS=${TERRACE_FSX_OPERATIONS:-60000} run "$door" fsx::
            run "$door" programs::{cp_a,mv_renames,rm_r,find_walks,git_clones,gcc_and_make,python_multiprocessing,sqlite,bash_globs}
        done
        ;;
    *) echo "usage: scripts/test-doors.sh [all|selected]" >&2; exit 2 ;;
esac

((${#failed[@]})) || exit 0
printf 'failed with the door %s\n' "${failed[@]}" >&2
exit 1
