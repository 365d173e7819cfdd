# To be sourced. environment DIRECTORY LIST [PYTHON]: a Python environment with the packages of a list; made again when the list or the
# interpreter changes, else nothing is done. By uv, which takes a fifteenth of pip's time; where uv can't be had, by pip.
uv_version=0.13.9

# pip_install PYTHON ARGUMENT…: packages into that interpreter's environment.
pip_install() {
    local python=$1 home=build/uv-$uv_version
    local uv=$PWD/$home/bin/uv
    shift
    # Several scripts may come here at once.
    (
        flock 9
        [ -x "$uv" ] || { python3 -m venv "$home" && "$home/bin/pip" install --quiet "uv==$uv_version"; }
    ) 9>build/uv.lock >&2 || true
    # What pip was told of the index, of certificates and of packages elsewhere is so for uv.
    local told=()
    [ -z "${PIP_INDEX_URL:-}" ] || told+=("UV_DEFAULT_INDEX=$PIP_INDEX_URL")
    [ -z "${PIP_CERT:-}" ] || told+=("SSL_CERT_FILE=$PIP_CERT")
    [ ! -d "${PIP_FIND_LINKS:-}" ] || told+=("UV_FIND_LINKS=$PIP_FIND_LINKS")
    env "${told[@]}" "$uv" pip install --quiet --python "$python" "$@" ||
        "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

environment() {
    local directory=$1 list=$2 python=${3:-python3} stamp
    stamp=$directory/.$({ cat "$list"; "$python" --version; } | sha256sum | cut -c1-16)
    [ ! -e "$stamp" ] || return 0
    echo "Python packages of $list into $directory"
    rm -rf "$directory"
    mkdir -p build
    # Also where a caller goes on without it, what is not whole has no stamp.
    "$python" -m venv "$directory" && pip_install "$directory/bin/python" -r "$list" && touch "$stamp"
}
