#!/usr/bin/env bash
# Builds the Python package's wheel into build/wheels, and installs it into the environment of its tests, build/python-venv.
# Quick when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build
venv=$build/python-venv
mkdir -p "$build"

stamp=$venv/.$({ cat python/requirements.txt; /usr/bin/python3 --version; } | sha256sum | cut -c1-16)
if [ ! -e "$stamp" ]; then
    echo "python: packages into build/python-venv"
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" ||
        { printf '%s\n' "python: no environment can be made" "hint: apt-get install python3-venv" >&2; exit 1; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt
    touch "$stamp"
fi

rm -rf "$build/wheels"
"$venv/bin/maturin" build --quiet --release --manifest-path python/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}" \
    --interpreter "$venv/bin/python" --out "$build/wheels"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$build"/wheels/terrace-*.whl
echo "python: $(echo "$build"/wheels/terrace-*.whl)"
