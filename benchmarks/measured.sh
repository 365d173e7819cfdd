# Sourced by the benchmarks' run.sh, in the repository: builds `terrace` unless TERRACE names one, and copies what is measured to
# $measured, removed at the end: a build meanwhile must not change it under the runs.
[ -n "${TERRACE:-}" ] || make build-files
mkdir -p build
measured=$(mktemp -d "$PWD/build/measured.XXXXXX")
trap 'rm -rf "$measured"' EXIT
built=$(dirname "${TERRACE:-target/release/terrace}")
cp "$built/terrace" "$built/libterrace_intercept.so" "$measured/"
