#!/usr/bin/env bash
# Installs what `make dist` built in fresh Debian systems, uses it, and removes it again: scripts/try-packages.sh [--or-skip] [RELEASE…]
#
# `--or-skip`: where that can't be done, for want of packages, root or debootstrap, it says so and does not fail (scripts/test.sh).
# Without arguments Debian 11, 12 and 13 (bullseye, bookworm, trixie). Needs root and debootstrap; the systems are kept in build/chroots.
# A system gets a C library, xz for the tarball, Python for the wheel: no compiler, and nothing is fetched within it.
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

mkdir -p "$chroots"
for release; do
    echo "== Debian $release"
    system=$chroots/$release
    if [ ! -e "$system/.made" ]; then
        rm -rf "$system"
        debootstrap --variant=minbase --include=python3,python3-venv,xz-utils "$release" "$system" "$mirror" >"$chroots/$release.log" 2>&1 ||
            { tail "$chroots/$release.log"; exit 1; }
        touch "$system/.made"
    fi
    rm -rf "$system/packages"
    mkdir -p "$system/packages"
    cp "$dist"/terrace-[0-9]*.tar.xz "$dist"/terrace_*.deb "$dist"/terrace-[0-9]*.whl packaging/try{.sh,.py,_hdf5.py} "$system/packages/"
    # The engine, if it was built.
    find "$dist" \( -name 'terrace-sql-*.tar.xz' -o -name 'terrace-sql_*.deb' -o -name 'terrace_sql-*.whl' \) -exec cp -t "$system/packages" {} +
    python=$(chroot "$system" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$python" --dest "$system/packages" numpy h5py ||
        [ "$python" = 3.9 ]
    unshare --mount --pid --fork bash -euc "
        for place in proc dev sys; do mount --rbind /\$place $system/\$place; done
        mount -t proc none $system/proc
        exec env -i PATH=\$PATH chroot $system bash /packages/try.sh"
done
