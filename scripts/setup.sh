#!/usr/bin/env bash
# Gets what `make demo`, `make test` and `make bench` need: scripts/setup.sh demo|test|bench…
#
# It looks first and does nothing when everything is there. Debian packages are installed where this runs as root; else
# their list is printed, to be asked for. Everything else goes below build/: Python packages into build/venv (versions in
# demo/requirements.txt), data into build/data.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# need THING PACKAGE: THING is a command, an absolute path (a glob may be used), or `python:MODULE`.
packages=()
need() {
    local thing=$1 package=$2
    case $thing in
        /*) compgen -G "$thing" >/dev/null && return ;;
        python:*) python3 -c "import ${thing#python:}" 2>/dev/null && return ;;
        *) command -v "$thing" >/dev/null && return ;;
    esac
    packages+=("$package")
}

install_packages() {
    ((${#packages[@]})) || return 0
    if [ "$(id -u)" != 0 ]; then
        fail "these Debian packages are not installed: ${packages[*]}" \
            "hint: ask for: apt-get install --no-install-recommends ${packages[*]}"
    fi
    command -v apt-get >/dev/null || fail "this is not Debian; please install what these packages have: ${packages[*]}"
    echo "setup: installing ${packages[*]}"
    mkdir -p build
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${packages[@]}"; } >build/apt.log 2>&1; then
        tail -n 20 build/apt.log >&2
        fail "the packages could not be installed; the whole output is in build/apt.log"
    fi
    packages=()
}

need_rust() {
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    command -v cargo >/dev/null || fail "cargo is not installed" "hint: install Rust $wanted or newer (https://rustup.rs)"
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "rustc is $have" "hint: install Rust $wanted or newer (https://rustup.rs)"
}

need_fuse() {
    [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || true
    [ -r /dev/fuse ] && [ -w /dev/fuse ] || fail \
        "/dev/fuse cannot be opened, and the demo's slow durable tier is a FUSE file system" \
        "hint: load the kernel's module (modprobe fuse), and in a container allow the device (--device /dev/fuse --cap-add SYS_ADMIN)"
}

# The brain template that the Python package nilearn ships; its wheel is unpacked, not installed.
brain_template() {
    local name=mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz
    local sum=421a10e872fd6cadae7f61d358dffbcc1795a497d61ee76c5dda2503e1a1e9e6
    [ -e "build/data/$name" ] && return
    echo "setup: brain template from the wheel of nilearn 0.12.1"
    local wheel
    wheel=$(mktemp -d)
    build/venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$wheel" nilearn==0.12.1
    mkdir -p build/data
    python3 -m zipfile -e "$wheel"/nilearn-*.whl "$wheel/unpacked"
    cp "$wheel/unpacked/nilearn/datasets/data/$name" "build/data/.$name"
    rm -rf "$wheel"
    echo "$sum  build/data/.$name" | sha256sum --check --quiet || fail "nilearn's wheel has another $name than expected"
    mv "build/data/.$name" "build/data/$name"
}

need_everywhere() {
    need_rust
    need cc gcc
    need git git
    need python3 python3
    need python:ensurepip python3-venv
}

(($#)) || fail "for what? usage: scripts/setup.sh demo|test|bench"
for purpose in "$@"; do
    case $purpose in
        demo)
            need_everywhere
            need_fuse
            need fusermount3 fuse3
            need mProjExec montage
            need '/usr/lib/eso-midas/*/test/prim/dss_test1.fits' eso-midas-testdata
            install_packages
            environment build/venv demo/requirements.txt
            brain_template
            ;;
        test)
            need_everywhere
            need fusermount3 fuse3
            need rsync rsync
            need sqlite3 sqlite3
            install_packages
            [ ! -x tests/setup.sh ] || tests/setup.sh
            ;;
        bench)
            need_everywhere
            need tar tar
            install_packages
            environment build/venv demo/requirements.txt
            ;;
        *) fail "unknown purpose \`$purpose\`; it is one of demo, test, bench" ;;
    esac
done
