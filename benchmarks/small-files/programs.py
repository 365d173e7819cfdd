"""Everyday programs of small files on a slow durable tier: natively, under Terrace by its defaults, by the preload library alone, with
small files in tiers, and with whole directories, and natively on tmpfs, by turns.

The durable tier is tools/slowfs: 121 MiB/s for writes, 1,381 MiB/s for reads, 0.5 ms a metadata request, which it counts; or any directory
(`--on`): of a local disk, of a mounted file system. What is timed is the whole: under Terrace with the start of the run, its final flush and
its end. What the program reads is there before, on the durable tier. `--long` takes programs of thousands of files, which take minutes each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

#: The settings of each way; none: natively.
WAYS = {
    "native": None,
    "default": ["--door", "both"],
    "`--preload-only`": ["--door", "preload"],
    "`--small-files place`": ["--door", "both", "--small-files", "place"],
    "`--directories all`": ["--door", "both", "--directories", "all"],
    "tmpfs": None,
}
SLOW = ["--write-mib", "121", "--read-mib", "1381", "--latency-us", "500", "--cache-ttl-ms", "1000", "--write-back"]


@dataclasses.dataclass
class Program:
    name: str
    #: Programs that it needs, or shell that tells by its exit code (with a space in it).
    needs: tuple[str, ...]
    #: Shell, in the directory that the program runs in, natively.
    prepare: str
    #: Shell, measured.
    run: str


SOURCES = r"""
for i in $(seq 121); do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "f.h"\nint f%d(int x) { char b[64]; snprintf(b, sizeof b, "%%d", x); return atoi(b) + (int)strlen(b); }\n' $i >f$i.c
done
echo 'int f1(int);' >f.h
echo '#include "f.h"
int main(void) { return f1(1) & 0; }' >main.c
printf 'OBJECTS := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(OBJECTS)\n\t$(CC) -o $@ $^\n%%.o: %%.c\n\t$(CC) -O1 -MMD -c -o $@ $<\n-include $(wildcard *.d)\n' >Makefile
"""
PYTHON = r'''
import multiprocessing, pathlib, shutil, zipfile

def work(number):
    directory = pathlib.Path("tree") / f"d{number}" / "inner"
    directory.mkdir(parents=True)
    for file in range(7):
        (directory / f"f{file}").write_text(f"{number} {file}\n" * 50)
    return sum(len(path.read_text()) for path in directory.iterdir())

if __name__ == "__main__":
    with multiprocessing.Pool(4) as pool:
        assert sum(pool.map(work, range(64))) > 0
    with zipfile.ZipFile("tree.zip", "w") as archive:
        for path in sorted(pathlib.Path("tree").rglob("f*")):
            archive.write(path)
    shutil.move("tree", "moved")
    shutil.rmtree("moved/d1")
    for path in pathlib.Path("moved").rglob("f0"):
        path.rename(path.with_name("renamed"))
'''
SQLITE = r'''
import sqlite3
with sqlite3.connect("data.db") as db:
    db.execute("create table t (i integer primary key, text text)")
for batch in range(20):
    with sqlite3.connect("data.db") as db:
        db.executemany("insert into t (text) values (?)", ((f"{batch} {i}" * 10,) for i in range(500)))
print(sqlite3.connect("data.db").execute("select count(*), sum(length(text)) from t").fetchone())
'''
H5PY = r'''
import h5py, numpy
for number in range(10):
    with h5py.File(f"data{number}.h5", "w") as file:
        for name in range(20):
            file[f"group{name}/data"] = numpy.arange(20000.0).reshape(100, 200)
total = 0
for number in range(10):
    with h5py.File(f"data{number}.h5") as file:
        total += sum(file[f"group{name}/data"][:].sum() for name in range(20))
'''
SNAKEMAKE = r"""
printf 'rule all:\n    input: "all.txt"\nrule one:\n    output: "{i}.txt"\n    shell: "seq {wildcards.i}00 >{output}"\nrule join:\n    input: expand("{i}.txt", i=range(1, 31))\n    output: "all.txt"\n    shell: "cat {input} >{output}"\n' >Snakefile
"""


TREE = r"""
mkdir tree; for d in $(seq 40); do mkdir tree/d$d; for f in $(seq 50); do seq $f 600 >tree/d$d/f$f; done; done
"""
ARCHIVE = TREE + "tar cf ../archive.tar tree; rm -r tree\n"
REPOSITORY_OF_TREE = TREE + "cd tree; git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm all; cd ..; mv tree ../repository\n"


#: slowfs holds a descriptor for each file that the kernel knows, of which some containers let nobody have more than 20,000.
SOURCE_TREE = (
    "mkdir source; cd source\n"
    + SOURCES
    + "for d in $(seq 150); do mkdir d$d; for f in $(seq 100); do seq $f $((f + 60)) >d$d/f$f; done; done\ncd ..; tar cf ../archive.tar source; rm -r source\n"
)
JOBS = SNAKEMAKE.replace("range(1, 31)", "range(1, 500)")
STACK = ("numpy", "scipy", "pandas")
#: Not where the own wheel is, which is removed with all beside it when it is built.
WHEELS = REPOSITORY / "build" / "stack-wheels"


def script(text: str) -> str:
    return f"cat >script.py <<'EOF'\n{text}EOF\n"


PROGRAMS = [
    Program("make -j4, 121 C files, -MMD", ("make", "cc"), SOURCES, "make -s -j4 prog"),
    Program("Python, 64 directories, 450 files", (), script(PYTHON), "python3 script.py"),
    Program("tar, 2,000 files in 40 directories", ("tar",), ARCHIVE, "tar xf ../archive.tar"),
    Program("git clone, 2,000 files", ("git",), REPOSITORY_OF_TREE, "git clone -q ../repository clone"),
    Program("ffmpeg and ImageMagick, 100 frames", ("ffmpeg", "convert -version | grep -q 'Version: ImageMagick'"), ":", "ffmpeg -loglevel error -f lavfi -i testsrc=duration=4:size=320x240:rate=25 f%03d.png && for f in f0[0-4]*.png; do convert $f -resize 50% s$f; done"),
    Program("snakemake -j4, 30 jobs", ("snakemake",), SNAKEMAKE, "snakemake -q -j4"),
    Program("sqlite", (), script(SQLITE), "python3 script.py"),
    Program("h5py", ("python3 -c 'import h5py'",), script(H5PY), "python3 script.py"),
    Program("sh, 300 small programs", (), ":", "for i in $(seq 300); do cp /etc/hostname f$i; done; for i in $(seq 100); do cat f$i; rm f$i; done"),
]  # fmt: skip


LONG = [
    Program("tar of 15,122 files, make -j4 of 121", ("tar", "make", "cc"), SOURCE_TREE, "tar xf ../archive.tar; make -s -j4 -C source prog"),
    Program("git clone and status, 2,000 files", ("git",), REPOSITORY_OF_TREE, "git clone -q ../repository clone; git -C clone status -s"),
    Program(f"pip install {' '.join(STACK)}", ("pip",), f"pip download -q -d {WHEELS} {' '.join(STACK)}", f"pip install -q --no-index --find-links {WHEELS} --target stack --no-compile {' '.join(STACK)}"),
    Program("snakemake -j4, 500 jobs", ("snakemake",), JOBS, "snakemake -q -j4"),
]  # fmt: skip


def can_run(need: str) -> bool:
    if " " in need:
        return subprocess.run(["sh", "-c", need], capture_output=True, check=False).returncode == 0
    return shutil.which(need) is not None


def sh(text: str, directory: pathlib.Path, prefix: list[str]) -> None:
    done = subprocess.run([*prefix, "sh", "-ec", text], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"small-files: {text}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def until(act: str, works) -> None:
    for _ in range(300):
        if works():
            return
        time.sleep(0.1)
    sys.exit(f"small-files: {act}: not within 30 seconds")


def measure(program: Program, way: str, arguments: argparse.Namespace) -> dict[str, float]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="terrace-programs-", dir=arguments.on or arguments.disk))
    local = pathlib.Path(tempfile.mkdtemp(prefix="terrace-programs-", dir=arguments.disk))
    fast = pathlib.Path(tempfile.mkdtemp(prefix="terrace-programs-", dir="/dev/shm"))
    is_counted = way != "tmpfs" and not arguments.on
    try:
        root = fast / "root" if way == "tmpfs" else base / "root"
        root.mkdir()
        sh(program.prepare, root, [])
        mount, report = base / "mount", base / "report"
        if is_counted:
            mount.mkdir()
            command = [arguments.slowfs, "--foreground", "--source", root, "--mount", mount, *SLOW, "--report", report]
            server = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
            until("mount", mount.is_mount)
            root = mount
        prefix = []
        if settings := WAYS[way]:
            prefix = [arguments.terrace, "run", "--quiet", *settings, "--root", str(root), "--tier", f"ram={fast}:4GiB", *arguments.setting,
                      "--state", str(local / "state"), "--runtime", str(fast / "run"), "--"]  # fmt: skip
        begin = time.monotonic()
        sh(program.run, root, prefix)
        found = {"s": time.monotonic() - begin}
        if is_counted:
            until("unmount", lambda: subprocess.run(["umount", str(mount)], capture_output=True, check=False).returncode == 0)
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:  # a mount namespace that somebody made meanwhile has a copy of the mount
                server.terminate()
                server.wait()
            found["requests"] = json.loads(report.read_text())["metadata_requests"]
        return found
    finally:
        for directory in (base, local, fast):
            shutil.rmtree(directory, ignore_errors=True)


def table(rows: list[dict]) -> str:
    ways = list(rows[0]["rounds"])
    counted = [way for way in ways if "requests" in rows[0]["rounds"][way][0]]
    head = ["program", *(f"{way}, s" for way in ways), *(f"{way}, requests" for way in counted)]
    text = "| " + " | ".join(head) + " |\n| --- |" + " ---: |" * (len(head) - 1) + "\n"
    for row in rows:
        middle = {way: {key: statistics.median(one[key] for one in found) for key in found[0]} for way, found in row["rounds"].items()}
        cells = [f"{middle[way]['s']:.2f}" for way in ways] + [f"{middle[way]['requests']:,.0f}" for way in counted]
        text += f"| {row['program']} | {' | '.join(cells)} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terrace", default="terrace")
    parser.add_argument("--slowfs", default="terrace-slowfs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--long", action="store_true", help="programs of thousands of files")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), metavar="WAY", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--setting", nargs="*", default=[], help="of `terrace run`, as --setting=--settle=1h")
    parser.add_argument("--on", metavar="DIR", help="the durable tier is this directory's file system, and not slowfs")
    parser.add_argument("--disk", default="/var/tmp", help="a directory of a local disk")
    parser.add_argument("--name", default="", help="of the results: small-files-programs-NAME")
    parser.add_argument("--dry", action="store_true", help="print, and write no results")
    arguments = parser.parse_args()
    facts = provenance("benchmarks/small-files/programs.sh " + " ".join(sys.argv[1:]))
    rows = []
    for program in LONG if arguments.long else PROGRAMS:
        if arguments.only not in program.name:
            continue
        if missing := [need for need in program.needs if not can_run(need)]:
            print(f"{program.name}: left out, for want of {', '.join(missing)}", file=sys.stderr)
            continue
        rounds: dict[str, list[dict[str, float]]] = {way: [] for way in arguments.ways}
        for _ in range(arguments.rounds):
            for way in arguments.ways:
                rounds[way].append(measure(program, way, arguments))
        rows.append({"program": program.name, "rounds": rounds})
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if not rows:
        sys.exit(f"small-files: no program whose name has {arguments.only!r} can be run")
    print(table(rows))
    if arguments.dry:
        return
    tier, counts = "a slow durable tier", ", and metadata requests"
    if arguments.on:
        kind = subprocess.run(["stat", "-f", "-c", "%T", arguments.on], capture_output=True, text=True, check=True).stdout.strip()
        tier, counts = f"a durable tier of {kind}", ""
    page = (
        f"# Everyday programs of small files on {tier}\n\n"
        f"{'' if arguments.on else '121 MiB/s for writes, 1,381 MiB/s for reads, 0.5 ms a metadata request. '}"
        f"Seconds with the run's start, final flush and end{counts}; medians of {arguments.rounds}. {provenance_line(facts)}\n\n{table(rows)}"
    )
    name = "small-files-programs" + (f"-{arguments.name}" if arguments.name else "")
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.json").write_text(json.dumps({"provenance": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
