#!/usr/bin/env bash
# Builds the Python package's wheel into build/wheels, and installs it into the environment of its tests, build/python-venv.
# Quick when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
build=$PWD/build
venv=$build/python-venv
mkdir -p "$build"

environment "$venv" python/requirements.txt /usr/bin/python3

rm -rf "$build/wheels"
"$venv/bin/maturin" build --quiet --release --manifest-path python/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}" \
    --interpreter "$venv/bin/python" --out "$build/wheels"
pip_install "$venv/bin/python" --no-deps --force-reinstall "$build"/wheels/terrace-*.whl
echo "python: $(echo "$build"/wheels/terrace-*.whl)"
