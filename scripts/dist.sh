#!/usr/bin/env bash
# Builds what is installed without compiling, into build/dist: make dist
#
#   terrace-VERSION-x86_64-linux.tar.xz              to unpack anywhere: programs, libraries, headers, man pages, completions, a module file
#   terrace-sql-VERSION-x86_64-linux.tar.xz          the SQL engine alone, to unpack over it
#   terrace-VERSION-cp311-abi3-manylinux_2_28….whl   `pip install`: the Python package and the programs
#   terrace_sql-VERSION-py3-none-manylinux_2_28….whl the SQL engine: what `terrace[sql]` depends on
#   terrace_VERSION_amd64.deb, terrace-sql_…
#
# Linked for glibc 2.28 (Debian 10, RHEL 8) by zig, which has the C library's interfaces of each version. Times are the commit's and
# paths are replaced, so that the same programs give the same packages, byte for byte; that two builds give the same programs has not been shown.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
root=$PWD
build=$PWD/build
dist=$build/dist
target=x86_64-unknown-linux-gnu
glibc=2.28
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
with_sql=1
[ "${1:-}" != --without-sql ] || with_sql=0

[ "$(uname -m)" = x86_64 ] || { printf 'dist: packages are built on x86_64\n' >&2; exit 1; }
venv=$build/dist-venv
environment "$venv" packaging/requirements.txt
PATH=$venv/bin:$PATH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
export CARGO_TARGET_DIR=$build/dist-target
export RUSTFLAGS="--remap-path-prefix=$root=terrace --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo ${RUSTFLAGS:-}"
rustup target list --installed 2>/dev/null | grep -q "$target" || rustup target add "$target"

# zig looks at no headers of this system: libfabric's are shown to it alone. The library is loaded where it is, at run time.
if [ -e /usr/include/rdma/fabric.h ]; then
    export LIBFABRIC_INCLUDE=$build/dist-include
    mkdir -p "$LIBFABRIC_INCLUDE"
    ln -sfn /usr/include/rdma "$LIBFABRIC_INCLUDE/rdma"
else
    echo "dist: no headers of libfabric (libfabric-dev): the packages will know TCP only" >&2
fi

# build PROFILE ARGUMENTS…
build() {
    local profile=$1
    shift
    cargo zigbuild --quiet --locked --profile "$profile" --target "$target.$glibc" "$@"
}
made=$CARGO_TARGET_DIR/$target/dist

echo "dist: building for glibc $glibc"
build preload -p terrace-intercept
build dist-command -p terrace-cli
build dist -p terrace-web -p terrace-predict -p terrace-bench -p terrace-stage
# GNU ld gives symbols their version in `make build`; zig's linker is told by a script.
abi=$(sed -n 's/^const ABI: &str = "\(.*\)";/\1/p' crates/capi/build.rs)
cargo-zigbuild rustc --quiet --locked --profile dist --target "$target.$glibc" -p terrace-capi --lib --crate-type staticlib
built=$dist/built
rm -rf "$dist"
mkdir -p "$built"
printf 'libterrace.so.%s { global: terrace_*; local: *; };\n' "$abi" >"$dist/versions"
zig=("$venv/bin/python" -m ziglang cc -target "x86_64-linux-gnu.$glibc")
"${zig[@]}" -shared -s -o "$built/libterrace.so" -Wl,-soname,"libterrace.so.$abi" -Wl,-z,nodelete -Wl,--gc-sections -Wl,--version-script="$dist/versions" \
    -Wl,--whole-archive "$made/libterrace.a" -Wl,--no-whole-archive -lpthread -ldl -lm -lunwind
CC="${zig[*]}" drivers/cfitsio/build.sh "$built"
CC="${zig[*]}" drivers/hdf5/build.sh "$built"
install -m 755 "$CARGO_TARGET_DIR/$target/preload/libterrace_intercept.so" "$built/"
install -m 755 "$CARGO_TARGET_DIR/$target/dist-command/terrace" "$made"/terrace-{bench,predict,stage,web} "$built/"
if ((with_sql)); then
    # Over the units of each crate at least: `fat` would take this one an hour.
    CARGO_PROFILE_RELEASE_LTO=false build release -p terrace-query
    install -m 755 "$CARGO_TARGET_DIR/$target/release/terrace-query" "$built/"
fi
for file in "$built"/* "$built"/hdf5/*; do
    [ -f "$file" ] || continue
    strip --strip-unneeded "$file"
    newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    [ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] ||
        { printf 'dist: %s needs %s\n' "$file" "$newest" >&2; exit 1; }
done

# stage NAME: an empty directory that will be installed as it is.
stage() {
    rm -rf "$dist/stage/$1"
    mkdir -p "$dist/stage/$1"
    echo "$dist/stage/$1"
}
tarball() {
    tar -C "$dist/stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$1" |
        xz -9 -T1 >"$dist/$1.tar.xz"
}
# deb NAME DESCRIPTION DEPENDS STAGE
deb() {
    local top
    top=$(stage "deb-$1")
    mkdir -p "$top/DEBIAN" "$top/usr"
    cp -a "$4/." "$top/usr/"
    mkdir -p "$top/usr/share/doc/$1"
    install -m 644 LICENSE "$top/usr/share/doc/$1/copyright"
    cat >"$top/DEBIAN/control" <<END
Package: $1
Version: $version
Architecture: amd64
Maintainer: The authors of Terrace <terrace@localhost>
Section: science
Priority: optional
Depends: $3
Installed-Size: $(du -sk "$top/usr" | cut -f1)
Description: $2
END
    find "$top" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz -z9 -b "$top" "$dist/$1_${version}_amd64.deb" >/dev/null
}

export TERRACE_BUILT=$built TERRACE_WITHOUT_SQL=1
files=$(stage "terrace-$version-x86_64-linux")
scripts/install.sh "$files"
install -m 644 LICENSE CHANGELOG.md "$files/share/"
echo "dist: tarball, Debian package, wheel"
tarball "terrace-$version-x86_64-linux"
deb terrace "user-space tiered data runtime for scientific workflows" "libc6 (>= $glibc)" "$files"

wheels=$(stage wheels)
maturin build --quiet --profile dist --zig --compatibility "manylinux_${glibc/./_}" --target "$target" \
    --manifest-path python/Cargo.toml --out "$wheels"
in_wheel=$(stage in-wheel)
cp -a "$files/bin" "$in_wheel/"
mkdir -p "$in_wheel/lib" "$in_wheel/share"
cp -a "$files/lib/terrace" "$in_wheel/lib/"
# The drivers load it; an environment's own lib/ is not the place for a library that nothing there is linked to.
install -m 755 "$built/libterrace.so" "$in_wheel/lib/terrace/"
cp -a "$files/share/man" "$in_wheel/share/"
python packaging/wheel.py "$in_wheel" "$wheels"/terrace-*.whl "$dist"
bytes=$(cat "$dist"/terrace-*.whl | wc -c)
((bytes < 20000000)) || { printf 'dist: the wheel has %s bytes; it is to stay below 20 MB\n' "$bytes" >&2; exit 1; }

if ((with_sql)); then
    echo "dist: the SQL engine"
    sql=$(stage "terrace-sql-$version-x86_64-linux")
    install -D -m 755 -t "$sql/bin" "$built/terrace-query"
    tarball "terrace-sql-$version-x86_64-linux"
    deb terrace-sql "SQL engine of Terrace" "terrace (= $version), libc6 (>= $glibc)" "$sql"
    python packaging/wheel.py "$sql" "terrace_sql==$version" "$dist"
fi
rm -rf "$dist/stage" "$built" "$dist/versions"
(cd "$dist" && sha256sum ./*.* | sed 's| \./| |' >SHA256SUMS && ls -l --block-size=KiB)
