#!/usr/bin/env bash
# Runs all tests and ends with one line of totals in cargo's own form, so that whoever reads the last summary reads all.
# Arguments go to `cargo test` (scripts/test.sh -p terrace-slowfs).
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
log=build/test.log
start=$(date +%s)
(($#)) || set -- --workspace

cargo test --release --no-fail-fast "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

awk -v status="$status" -v seconds="$(($(date +%s) - start))" '
    /^test result: / {
        for (i = 4; i < NF; i++) {
            count = $i
            kind = $(i + 1); sub(/;$/, "", kind)
            if (count ~ /^[0-9]+$/ && kind ~ /^(passed|failed|ignored|measured)$/) total[kind] += count
            if (count ~ /^[0-9]+$/ && kind == "filtered") total[kind] += count
        }
    }
    /SKIPPED: / { sub(/^.*SKIPPED: /, "SKIPPED: "); skipped[$0] = 1 }
    /^test .* \.\.\. FAILED$/ { failed[$2] = 1 }
    END {
        for (line in skipped) print line
        for (name in failed) print "failed: " name
        word = (status == 0 && total["failed"] == 0) ? "ok" : "FAILED"
        printf "\ntest result: %s. %d passed; %d failed; %d ignored; %d measured; %d filtered out; finished in %d.00s\n",
            word, total["passed"], total["failed"], total["ignored"], total["measured"], total["filtered"], seconds
    }' "$log"
exit "$status"
