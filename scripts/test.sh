#!/usr/bin/env bash
# Runs all tests and ends with what those said that failed, and one line of totals in cargo's own form: whoever reads the end reads all.
# Arguments go to `cargo test` (scripts/test.sh -p terrace-slowfs). Without any, a part of the system's tests runs again by each single
# way to reach programs (scripts/test-doors.sh), and the tests of the Python package run; packages are tried where `make dist` made some.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
log=build/test.log
start=$(date +%s)
with_python=$((!$#))
# Some tests wait for other things than a core.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 2))}

tests() {
    if (($#)); then
        cargo test --release --no-fail-fast "$@"
    else
        local status=0
        # As `make build-tests` builds, so that nothing is built again.
        cargo test --release --no-fail-fast --workspace --exclude terrace-intercept --exclude terrace-python || status=$?
        scripts/test-doors.sh selected || status=$?
        return "$status"
    fi
}

tests "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# The Python package's tests and examples, with their totals in cargo's form.
test_python() {
    local python=$PWD/build/python-venv/bin/python results=$PWD/build/python-tests.xml
    rm -f "$results"
    # Files side by side: what a file's tests share is made once.
    "$python" -m pytest -q --tb=short -rf -n 4 --dist loadfile -c python/pyproject.toml --junit-xml="$results" python/tests
    local status=$?
    "$python" - "$results" <<'END'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
count = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
failed = count["failures"] + count["errors"]
passed = count["tests"] - failed - count["skipped"]
print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {count['skipped']} ignored; "
      f"0 measured; 0 filtered out; finished in {float(suite.get('time')):.2f}s")
for case in suite.iter("testcase"):
    if case.find("failure") is not None or case.find("error") is not None:
        print(f"test python::{case.get('name').replace(' ', '_')} ... FAILED")
END
    return "$status"
}
if ((with_python)); then
    if [ -x build/python-venv/bin/python ]; then
        test_python 2>&1 | tee -a "$log"
        ((PIPESTATUS[0] == 0)) || status=1
    else
        echo "SKIPPED: the Python package's tests (make python)" | tee -a "$log"
    fi
fi

if ((with_python)); then
    scripts/try-packages.sh --or-skip 2>&1 | tee -a "$log"
    ((PIPESTATUS[0] == 0)) || status=1
fi

awk -v status="$status" -v seconds="$(($(date +%s) - start))" '
    /^test result: / {
        for (i = 4; i < NF; i++) {
            count = $i
            kind = $(i + 1); sub(/;$/, "", kind)
            if (count ~ /^[0-9]+$/ && kind ~ /^(passed|failed|ignored|measured)$/) total[kind] += count
            if (count ~ /^[0-9]+$/ && kind == "filtered") total[kind] += count
        }
    }
    # What a failed test wrote (libtest, then pytest), to its next heading.
    /^---- .* stdout ----$/ || /^_+ .* _+$/ { says = NR + 30 }
    /^failures:$/ || /^=+ .* =+$/ { says = 0 }
    NR <= says { words = words $0 "\n" }
    /SKIPPED: / { sub(/^.*SKIPPED: /, "SKIPPED: "); skipped[$0] = 1 }
    /^test .* \.\.\. FAILED$/ { failed[$2] = 1 }
    END {
        printf "%s", words
        for (line in skipped) print line
        for (name in failed) print "failed: " name
        word = (status == 0 && total["failed"] == 0) ? "ok" : "FAILED"
        printf "\ntest result: %s. %d passed; %d failed; %d ignored; %d measured; %d filtered out; finished in %d.00s\n",
            word, total["passed"], total["failed"], total["ignored"], total["measured"], total["filtered"], seconds
    }' "$log"
exit "$status"
