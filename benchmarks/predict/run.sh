#!/bin/sh
# Closed form and simulation beside each measured point of benchmarks/results/incrementation.json: writes the table of
# docs/reference/performance.md, docs/images/predict.png and benchmarks/results/predict.json. A few seconds; run it again whenever the
# measurement is new. Options are predict.py's (`--runs 100`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
cd "$repository"
[ -n "${TERRACE:-}" ] || cargo build --release -p terrace-cli -p terrace-predict
terrace=${TERRACE:-$repository/target/release/terrace}
for python in "$repository/build/venv/bin/python" python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then
        exec "$python" "$here/predict.py" --terrace "$terrace" "$@"
    fi
done
echo "SKIPPED: the picture needs matplotlib (Debian: apt-get install python3-matplotlib)." >&2
exec python3 "$here/predict.py" --terrace "$terrace" --no-plot "$@"
