# To be sourced. tool NAME VERSION [FLAG…]: a program from crates.io in build/tools/bin, of exactly this version. Little optimized: it is to be
# had soon, and does little.
tool() {
    local name=$1 version=$2 build=$PWD/build
    shift 2
    if [ ! -x "$build/tools/bin/$name" ] || ! grep -q "^\"$name $version " "$build/tools/.crates.toml" 2>/dev/null; then
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$build/tools-target \
            cargo install --quiet --locked "$@" --root "$build/tools" --version "=$version" "$name"
    fi
}
