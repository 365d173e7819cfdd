#!/usr/bin/env bash
# Within a fresh system that has the packages in /packages: installs each, uses it, removes it (scripts/try-packages.sh).
set -euo pipefail
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8
there() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /packages -o -path /tmp -o -path /var/cache -o -path /var/log \
    -o -path '/var/lib/dpkg' -o -name __pycache__ \) -prune -o -print | sort; }
# What an earlier try that failed has left is not of this one.
rm -rf /opt/somewhere /tmp/env /tmp/example /tmp/first /var/tmp/terrace-0
dpkg -P terrace >/tmp/dpkg 2>&1 || true
there >/tmp/before
left() { there | diff /tmp/before - && echo "ok      $1: nothing is left"; }
works() {
    rm -rf /tmp/work && mkdir /tmp/work && cd /tmp/work
    terrace doctor >/tmp/doctor || { cat /tmp/doctor; exit 1; }
    terrace run --quiet -- sh -c 'mkdir d; echo data >d/file; cat d/file; test -e .terrace'
    [ "$(cat d/file)" = data ] && [ ! -L d/file ] && [ ! -e .terrace ]
    terrace completions bash | grep -q terrace
    terrace bench --help >/tmp/help && terrace predict --help >/tmp/help && terrace web --help >/tmp/help && terrace stage-in --help >/tmp/help
    cd / && rm -rf /tmp/work
    echo "ok      $1: doctor, a run, the tools"
}

mkdir -p /opt/somewhere && tar -C /opt/somewhere -xf /packages/terrace-[0-9]*.tar.xz --strip-components=1
PATH=/opt/somewhere/bin:$PATH works tarball
if sql=$(compgen -G '/packages/terrace-sql-*.tar.xz'); then
    tar -C /opt/somewhere -xf "$sql" --strip-components=1
    PATH=/opt/somewhere/bin:$PATH terrace sql --help >/tmp/help
    echo "ok      tarball: the SQL engine over it"
else
    echo "-       the SQL engine: not built"
fi
rm -rf /opt/somewhere /var/tmp/terrace-0 && left tarball

dpkg -i /packages/terrace_*.deb >/tmp/dpkg && works "Debian package"
if [ -n "$(type -P julia)" ]; then
    mkdir /tmp/example && cd /tmp/example
    terrace run --quiet -- julia --startup-file=no /packages/heat.jl
    terrace run --quiet -- julia --startup-file=no /packages/try.jl
    [ -f run/heat/zarr.json ] && cd / && rm -rf /tmp/example
    echo "ok      Debian package: arrays in Julia $(julia --version | cut -d' ' -f3)"
else
    echo "-       Julia: Debian has none here"
fi
dpkg -P terrace >/tmp/dpkg && rm -rf /var/tmp/terrace-0 && left "Debian package"

if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python3 -m venv /tmp/env
    mkdir /tmp/first && cd /tmp/first
    begun=$(date +%s%N)
    /tmp/env/bin/pip install --quiet --disable-pip-version-check --no-index --find-links /packages /packages/terrace-[0-9]*.whl
    installed=$(date +%s%N)
    /tmp/env/bin/terrace run --quiet -- dd if=/dev/zero of=file bs=1M count=256 status=none
    ran=$(date +%s%N)
    [ "$(stat -c %s file)" = $((256 << 20)) ] && [ ! -L file ] && cd / && rm -rf /tmp/first
    echo "ok      wheel: installed in $(((installed - begun) / 1000000)) ms, a first run of 256 MiB in $(((ran - installed) / 1000000)) ms"
    ((ran - begun < 60000000000))
    PATH=/tmp/env/bin:$PATH works wheel
    mkdir /tmp/example && cd /tmp/example
    PATH=/tmp/env/bin:$PATH terrace run --quiet -- python3 /packages/try.py
    /tmp/env/bin/pip install --quiet --disable-pip-version-check --no-index --find-links /packages h5py
    PATH=/tmp/env/bin:$PATH terrace run --quiet --hdf5 -- python3 /packages/try_hdf5.py && [ -f file.h5 ] && [ ! -e .hdf5 ]
    echo "ok      wheel: an array in Python, h5py by the connector"
    cd / && rm -rf /tmp/example
    /tmp/env/bin/pip uninstall --quiet --yes terrace && [ ! -e /tmp/env/bin/terrace ] && [ ! -e /tmp/env/lib/terrace ]
    rm -rf /tmp/env /var/tmp/terrace-0 && left wheel
else
    echo "-       wheel: needs Python 3.11, this is $(python3 --version)"
fi
