#!/usr/bin/env bash
# Fetches what the whole-system tests need: test programs and an S3 server from crates.io, Python packages, Debian packages, servers of
# Azure's and Google's storage from npm and as a Go module, Nextflow and a JDBC driver from Maven Central.
# Quick when everything is there. Versions are pinned here, in requirements.txt and in engines.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
build=$PWD/build
mkdir -p "$build"

packages=(attr acl bc git gcc make rsync sqlite3 montage e2fsprogs util-linux xz-utils bzip2 file
    python3-venv python3-numpy binutils dash gawk pkg-config gfortran libcfitsio10
    libfabric-dev openmpi-bin libopenmpi-dev libhdf5-openmpi-dev libnetcdf-mpi-dev fio strace gdb openssh-server iproute2
    slurmctld slurmd slurm-client munge libslurm-dev mpich libmpich-dev
    chromium chromium-driver)
# Compilers and interpreters of the program matrix, by their commands: a machine may have them from elsewhere.
languages=(busybox-static:/bin/busybox musl-tools:musl-gcc perl:perl golang-go:go default-jdk-headless:javac nodejs:node r-base-core:Rscript)

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
for language in "${languages[@]}"; do
    command -v "${language#*:}" >/dev/null || missing+=("${language%%:*}")
done
if ((${#missing[@]})); then
    if [ "$(id -u)" = 0 ]; then
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
    else
        echo "The system tests need Debian packages that are not installed." >&2
        echo "hint: ask for: apt-get install ${missing[*]}" >&2
        exit 1
    fi
fi

# What follows waits for the network or for one core, so it goes on side by side.
parts=()
trap 'kill "${parts[@]}" 2>/dev/null || true' EXIT
beside() { "$@" & parts+=($!); }

# Google's storage. Tests are skipped, loudly, where it, or one of the next three, can't be had.
gcs=fake-gcs-server@v1.56.1
google_storage() {
    [ ! -e "$build/tools/.$gcs" ] && command -v go >/dev/null || return 0
    GOBIN=$build/tools/bin nice go install "github.com/fsouza/$gcs" 2>"$build/fake-gcs-server.log" && touch "$build/tools/.$gcs" ||
        echo "fake-gcs-server could not be had (build/fake-gcs-server.log): tests of Google's storage are skipped" >&2
}

# Azure's storage, and Azure's own client.
azurite=(azurite@3.35.0 @azure/storage-blob@12.31.0)
azure_storage() {
    local stamp
    stamp=$build/azurite/.$(echo "${azurite[@]}" | sha256sum | cut -c1-16)
    [ ! -e "$stamp" ] && command -v npm >/dev/null || return 0
    rm -rf "$build/azurite"
    mkdir -p "$build/azurite"
    if npm install --no-fund --no-audit --omit=dev --prefix "$build/azurite" "${azurite[@]}" >"$build/azurite.log" 2>&1; then
        touch "$stamp"
    else
        echo "Azurite could not be had (build/azurite.log): tests of Azure are skipped" >&2
    fi
}

# Nextflow is one file; its own launcher would download others. Arrow's JDBC driver of Flight SQL has all that it needs in it.
nextflow=nextflow-25.04.4-one.jar
jdbc=flight-sql-jdbc-driver-18.3.0.jar
jdbc_sum=3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c
from_maven() {
    command -v mvn >/dev/null || return 0
    local copy=(mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy)
    if [ ! -e "$build/nextflow/$nextflow" ]; then
        "${copy[@]}" -Dartifact=io.nextflow:nextflow:25.04.4:jar:one -DoutputDirectory="$build/nextflow" >"$build/nextflow.log" 2>&1 ||
            echo "Nextflow could not be had (build/nextflow.log): tests of it are skipped" >&2
    fi
    if [ ! -e "$build/jdbc/$jdbc" ]; then
        "${copy[@]}" -Dartifact=org.apache.arrow:flight-sql-jdbc-driver:18.3.0 -DoutputDirectory="$build/jdbc/new" >"$build/jdbc.log" 2>&1 &&
            echo "$jdbc_sum  $build/jdbc/new/$jdbc" | sha256sum --check --quiet >>"$build/jdbc.log" 2>&1 &&
            mv "$build/jdbc/new/$jdbc" "$build/jdbc/$jdbc" ||
            echo "Arrow's JDBC driver could not be had (build/jdbc.log): tests of it are skipped" >&2
    fi
}

beside google_storage
beside azure_storage
beside from_maven
beside environment "$build/tests-venv" tests/requirements.txt /usr/bin/python3
# Workflow engines, in an environment of their own: their lists of libraries are long, and none of the other tests needs them.
beside environment "$build/engines-venv" tests/engines.txt /usr/bin/python3

# From crates.io, dynamically linked as every Rust program is by default.
. scripts/tool.sh
tool pjdfstest 0.2.2
tool fsx 0.3.2
# An S3 server that keeps objects as files.
tool s3s-fs 0.14.1 --features binary

for part in "${parts[@]}"; do
    wait "$part"
done
trap - EXIT
[ ! -e "$build/nextflow/$nextflow" ] || install -m 755 tests/nextflow.sh "$build/nextflow/nextflow"
