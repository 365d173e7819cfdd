# Sourced by run.sh and paper.sh, in the repository, with the caller's arguments: looks for the programs in $needs (and names the
# packages in $packages), and builds `terrace-bench` unless the first argument is --no-build, which it takes away.
for program in $needs; do
    command -v "$program" >/dev/null || { echo "benchmarks/instrument needs $program (Debian: $packages)" >&2; exit 1; }
done
if [ "${1:-}" = --no-build ]; then shift; else cargo build --release -p terrace-bench; fi
