#!/usr/bin/env bash
# Installs what `make dist` built in fresh Debian systems, uses it, and removes it again: scripts/try-packages.sh [RELEASE…]
#
# Without arguments Debian 11, 12 and 13 (bullseye, bookworm, trixie). Needs root and debootstrap; the systems are kept in build/chroots.
# A system gets a C library, and Python for the wheels: no compiler, no network.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$PWD/build/dist
chroots=$PWD/build/chroots
(($#)) || set -- bullseye bookworm trixie
[ "$(id -u)" = 0 ] || { printf 'try-packages: a fresh system takes root'\''s rights to make\n' >&2; exit 1; }
compgen -G "$dist/terrace-*.tar.xz" >/dev/null || { printf 'try-packages: nothing is built\nhint: make dist\n' >&2; exit 1; }
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)}

mkdir -p "$chroots"
for release; do
    echo "== Debian $release"
    system=$chroots/$release
    if [ ! -e "$system/.made" ]; then
        rm -rf "$system"
        debootstrap --variant=minbase --include=python3,python3-venv "$release" "$system" "$mirror" >"$chroots/$release.log" 2>&1 ||
            { tail "$chroots/$release.log"; exit 1; }
        touch "$system/.made"
    fi
    rm -rf "$system/packages"
    mkdir -p "$system/packages"
    cp "$dist"/terrace-[0-9]*.tar.xz "$dist"/terrace_*.deb "$dist"/terrace-[0-9]*.whl packaging/try.{sh,py} "$system/packages/"
    python=$(chroot "$system" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$python" --dest "$system/packages" numpy ||
        [ "$python" = 3.9 ]
    unshare --mount --pid --fork bash -euc "
        for place in proc dev sys; do mount --rbind /\$place $system/\$place; done
        mount -t proc none $system/proc
        exec chroot $system bash /packages/try.sh"
done
