# To be sourced. tool NAME VERSION [FLAG…]: a program from crates.io in build/tools/bin, of exactly this version. It is to be had soon, and does
# little: only what is run much, or goes over all bytes of files, is optimized.
tool() {
    local name=$1 version=$2 build=$PWD/build hot=() package
    shift 2
    for package in pjdfstest fsx md-5 sha2 crc32fast; do
        hot+=(--config "profile.release.package.$package.opt-level=2")
    done
    if [ ! -x "$build/tools/bin/$name" ] || ! grep -q "^\"$name $version " "$build/tools/.crates.toml" 2>/dev/null; then
        CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$build/tools-target \
            cargo install --quiet --locked "${hot[@]}" "$@" --root "$build/tools" --version "=$version" "$name"
    fi
}
