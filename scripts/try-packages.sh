#!/usr/bin/env bash
# Installs what `make dist` built in fresh Debian systems, uses it, and removes it again: scripts/try-packages.sh [--or-skip] [RELEASE…]
#
# `--or-skip`: where that can't be done, for want of packages, root or debootstrap, it says so and does not fail (scripts/test.sh).
# Without arguments Debian 11, 12 and 13 (bullseye, bookworm, trixie). Needs root and debootstrap; the systems are kept in build/chroots.
# A system gets a C library, xz for the tarball, Python for the wheel, and where Debian has it Julia for the example: no compiler, and nothing
# is fetched within it. Only the steps of packaging/apptainer.def fetch, in a copy of Debian 12 that is thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$PWD/build/dist
chroots=$PWD/build/chroots
# cannot WHY HINT
cannot() {
    if ((or_skip)); then
        printf 'SKIPPED: packages in fresh Debian systems: %s (%s)\n' "$1" "$2"
        exit 0
    fi
    printf 'try-packages: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}
or_skip=0
[ "${1:-}" != --or-skip ] || { or_skip=1; shift; }
(($#)) || set -- bullseye bookworm trixie
compgen -G "$dist/terrace-[0-9]*.tar.xz" >/dev/null || cannot "nothing is built" "make dist"
[ "$(id -u)" = 0 ] || cannot "a fresh system takes root's rights to make" "run it as root, by sudo"
[ -n "$(type -P debootstrap)" ] || cannot "there is no debootstrap" "apt install debootstrap"
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)}

# within SYSTEM COMMAND…: as in a container, with the machine's devices and processes of its own.
within() {
    local system=$1
    shift
    unshare --mount --pid --fork bash -euc '
        system=$1
        shift
        for place in proc dev sys; do mount --rbind /$place "$system/$place"; done
        mount -t proc none "$system/proc"
        exec env -i PATH="$PATH" chroot "$system" "$@"' within "$system" "$@"
}

# The steps of packaging/apptainer.def in the base that it names, but from debootstrap: %files, %post, %test, and the %runscript.
apptainer() {
    unshare --mount bash -euc '
        system=$1
        shift
        mount -t tmpfs none "$chroots/apptainer"
        mkdir "$chroots"/apptainer/{upper,work,system}
        mount -t overlay -o "lowerdir=$system,upperdir=$chroots/apptainer/upper,workdir=$chroots/apptainer/work" none "$chroots/apptainer/system"
        section "%files" | while read -r from to; do [ -z "$from" ] || cp $from "$chroots/apptainer/system$to"; done
        within "$chroots/apptainer/system" bash -euxc "$(section %post)"
        within "$chroots/apptainer/system" bash -euc "$(section %test)"
        [ "$(within "$chroots/apptainer/system" bash -euc "$(section %runscript)" runscript --version)" = "terrace $version" ]
    ' apptainer "$1"
}
# section NAME: of the definition.
section() { awk -v name="$1" '/^%/ { inside = $1 == name; next } inside' packaging/apptainer.def; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
export -f within section
export chroots version

declare -A also=([bullseye]=,julia)
mkdir -p "$chroots/apptainer"
for release; do
    echo "== Debian $release"
    system=$chroots/$release
    packages=python3,python3-venv,xz-utils${also[$release]:-}
    if [ "$(cat "$system/.made" 2>/dev/null)" != "$packages" ]; then
        rm -rf "$system"
        debootstrap --variant=minbase --include="$packages" "$release" "$system" "$mirror" >"$chroots/$release.log" 2>&1 ||
            { tail "$chroots/$release.log"; exit 1; }
        printf %s "$packages" >"$system/.made"
    fi
    rm -rf "$system/packages"
    mkdir -p "$system/packages"
    cp "$dist"/terrace-[0-9]*.tar.xz "$dist"/terrace_*.deb "$dist"/terrace-[0-9]*.whl packaging/try{.sh,.py,_hdf5.py,.jl} examples/julia/{Terrace,heat}.jl \
        "$system/packages/"
    # The engine, if it was built.
    find "$dist" \( -name 'terrace-sql-*.tar.xz' -o -name 'terrace-sql_*.deb' -o -name 'terrace_sql-*.whl' \) -exec cp -t "$system/packages" {} +
    python=$(chroot "$system" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$python" --dest "$system/packages" numpy h5py ||
        [ "$python" = 3.9 ]
    within "$system" bash /packages/try.sh
    if [ "$release" = bookworm ]; then
        rm -rf "$system/packages"
        apptainer "$system" >"$chroots/apptainer.log" 2>&1 || { cat "$chroots/apptainer.log"; exit 1; }
        echo "ok      packaging/apptainer.def: its steps"
    fi
done
