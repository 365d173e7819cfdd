"""Programs of many processes natively, by the preload library alone and by both doors (the default), by turns.

Each program runs in a fresh copy of the same directory. What is timed is the program itself, inside of the run: starting and ending a run
are the last line's. What is not installed is skipped, and what fails is named; the others go on.

The whole keeps within `--minutes`: a program gets as many rounds as its part of the time allows, up to `--rounds`, and three at least.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

WAYS = ("native", "preload", "both")
#: More is to be looked into: the default to `--preload-only`, and either to native on a local disk.
AIM_BOTH_TO_PRELOAD, AIM_TO_NATIVE = 1.03, 1.10
ROUNDS_MIN = 3
#: No round of a program takes that long.
PATIENCE_S = 120


class Failed(Exception):
    """A program did not do what it is measured doing."""



@dataclasses.dataclass
class Pipeline:
    name: str
    #: Programs that it needs.
    needs: tuple[str, ...]
    #: Shell, in the directory that is copied.
    prepare: str
    #: Shell, in the copy; `$SCRATCH` is outside of the root, `$PYTHON` this very Python (no shim).
    run: str
    #: Shell that fails where a program of that name is not what is meant.
    probe: str = ":"


SOURCES = r"""
for i in $(seq 121); do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f%d(int x) { char b[64]; snprintf(b, sizeof b, "%%d", x); return atoi(b) + (int)strlen(b); }\n' $i >f$i.c
done
echo 'int f1(int); int main(void) { return f1(1) & 0; }' >main.c
printf 'OBJECTS := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(OBJECTS)\n\t$(CC) -o $@ $^\n%%.o: %%.c\n\t$(CC) -O1 -c -o $@ $<\n' >Makefile
"""
REPOSITORY = r"""
for d in $(seq 20); do mkdir d$d; for i in $(seq 100); do echo $d $i >d$d/f$i; done; done
git init -q . && git add -A && git -c user.name=x -c user.email=x@x commit -qm all
"""
CONFIGURE = r"""
cat >configure.ac <<'EOF'
AC_INIT([x], [1])
AC_PROG_CC
AC_CHECK_HEADERS([stdio.h stdlib.h string.h unistd.h sys/stat.h sys/time.h fcntl.h errno.h none.h pthread.h math.h])
AC_CHECK_FUNCS([memcpy strdup fopen mmap none posix_spawn getrandom statx])
AC_CHECK_SIZEOF([long])
AC_C_BIGENDIAN
AC_CONFIG_HEADERS([config.h])
AC_OUTPUT
EOF
autoheader 2>/dev/null; autoconf 2>/dev/null
"""
GO = r"""
printf 'module x\n\ngo 1.19\n' >go.mod
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("x") }\n' >main.go
GOCACHE=$SCRATCH/go go build -o /dev/null .
"""
FRAMES = "ffmpeg -loglevel error -f lavfi -i testsrc=duration=4:size=320x240:rate=25 f%03d.png"
JAVA = "printf 'class X { public static void main(String[] a) { System.out.println(1); } }' >X.java; javac X.java"

PIPELINES = [
    Pipeline("make -j4, 121 C files", ("make", "cc"), SOURCES, "make -s -j4 prog"),
    Pipeline("make -j1, 121 C files", ("make", "cc"), SOURCES, "make -s -j1 prog"),
    Pipeline("configure", ("autoconf", "cc"), CONFIGURE, "sh ./configure -q"),
    Pipeline("git status ×10, 2,000 files", ("git",), REPOSITORY, "for i in $(seq 10); do git status --short; done"),
    Pipeline("git clone, 2,000 files", ("git",), REPOSITORY, "git clone -q . copy"),
    Pipeline("go build", ("go",), GO, "GOCACHE=$SCRATCH/go go build -o x ."),
    Pipeline("pip install, 1,000 files", ("python3",), ":", "$PYTHON -m pip install -q --no-index --no-deps --no-compile --target here $SCRATCH/many-1-py3-none-any.whl", "$PYTHON -m pip --version"),
    Pipeline("Python start-up ×20", ("python3",), ":", "for i in $(seq 20); do $PYTHON -c 'import json, subprocess'; done"),
    Pipeline("Perl start-up ×50", ("perl",), ":", "for i in $(seq 50); do perl -MPOSIX -e 1; done"),
    Pipeline("Java start-up ×5", ("java", "javac"), JAVA, "for i in $(seq 5); do java -cp . X; done"),
    Pipeline("R CMD config ×5", ("R",), ":", "for i in $(seq 5); do R CMD config CC; done"),
    Pipeline("snakemake, 20 jobs", ("snakemake",), r"""printf 'rule all:\n    input: expand("{i}.txt", i=range(20))\nrule one:\n    output: "{i}.txt"\n    shell: "date >{output}"\n' >Snakefile""", "snakemake -q -c4"),
    Pipeline("ffmpeg, 100 frames", ("ffmpeg",), ":", f"{FRAMES}"),
    Pipeline("ffmpeg and ImageMagick, 100 frames", ("ffmpeg", "convert"), ":", f"{FRAMES} && for f in f0[0-4]*.png; do convert $f -resize 50% s$f; done", "convert -version | grep -q ImageMagick"),
    Pipeline("sh, 300 small programs", ("sh",), ":", "for i in $(seq 300); do cp /etc/hostname f$i; done; for i in $(seq 100); do cat f$i; rm f$i; done"),
]  # fmt: skip


class Place:
    def __init__(self, base: str, terrace: str) -> None:
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="terrace-pipelines-", dir=base))
        self.fast = pathlib.Path(tempfile.mkdtemp(prefix="terrace-pipelines-", dir="/dev/shm"))
        self.terrace = terrace
        with zipfile.ZipFile(self.base / "many-1-py3-none-any.whl", "w") as wheel:
            for number in range(1000):
                wheel.writestr(f"many/f{number}.py", f"x = {number}\n" * 20)
            wheel.writestr("many-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: many\nVersion: 1\n")
            wheel.writestr("many-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("many-1.dist-info/RECORD", "")

    def sh(self, script: str, directory: pathlib.Path, prefix: list[str] | None = None) -> None:
        command = [*(prefix or []), "sh", "-ec", f"cd {directory}; {script}"]
        environment = {**os.environ, "SCRATCH": str(self.base), "PYTHON": sys.executable}
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{script.strip()[:80]}` took more than {PATIENCE_S} s") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise Failed(f"`{script.strip()[:80]}` ended with exit code {done.returncode}: {said}")

    def prefix(self, way: str, root: pathlib.Path) -> list[str]:
        """The command before a program that runs under Terrace. Files stay where they are made: flushes are another benchmark's."""
        if way == "native":
            return []
        return [
            self.terrace, "run", "--quiet", "--door", way, "--root", str(root), "--tier", f"ram={self.fast}:4GiB",
            "--settle", "1h", "--evict", "**", "--state", str(self.base / "state"), "--runtime", str(self.fast / "run"), "--",
        ]  # fmt: skip

    def seconds(self, pipeline: Pipeline, way: str) -> float:
        root = self.base / "root"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.base / "prepared", root, symlinks=True)
        times = self.base / "times"
        script = f"date +%s%N >{times}; {pipeline.run}; date +%s%N >>{times}"
        self.sh(script, root, self.prefix(way, root))
        begin, end = (int(line) for line in times.read_text().split())
        return (end - begin) / 1e9

    def measure(self, pipeline: Pipeline, rounds: int, until: float) -> dict[str, object]:
        shutil.rmtree(self.base / "prepared", ignore_errors=True)
        (self.base / "prepared").mkdir()
        self.sh(pipeline.prepare, self.base / "prepared")
        for way in WAYS:  # what is in no cache yet
            self.seconds(pipeline, way)
        measured: dict[str, list[float]] = {way: [] for way in (*WAYS, "control")}
        for done in range(rounds):
            if done >= ROUNDS_MIN and time.monotonic() > until:
                break
            for way in measured:
                measured[way].append(self.seconds(pipeline, "native" if way == "control" else way))

        def ratio(of: str, to: str) -> float:
            return statistics.median(ours / theirs for ours, theirs in zip(measured[of], measured[to]))

        return {
            "pipeline": pipeline.name, "rounds": len(measured["native"]), **{f"{way}_s": statistics.median(times) for way, times in measured.items()},
            "control": ratio("control", "native"), "preload": ratio("preload", "native"), "both": ratio("both", "native"),
            "both_to_preload": ratio("both", "preload"), "all_s": measured,
        }  # fmt: skip

    def measure_start(self, rounds: int, until: float) -> dict[str, object]:
        """Starting and ending a run of nothing: milliseconds, not ratios."""
        root = self.base / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        measured: dict[str, list[float]] = {way: [] for way in WAYS}
        for done in range(3 * rounds):
            if done >= ROUNDS_MIN and time.monotonic() > until:
                break
            for way, times in measured.items():
                begun = time.perf_counter()
                subprocess.run([*self.prefix(way, root), "true"], check=True)
                times.append(time.perf_counter() - begun)
        return {f"{way}_s": statistics.median(times) for way, times in measured.items()}

    def remove(self) -> None:
        for directory in (self.base, self.fast):
            shutil.rmtree(directory, ignore_errors=True)


def table(rows: list[dict[str, object]]) -> str:
    text = "| program | rounds | native s | control | `--preload-only` | default | default to `--preload-only` |\n"
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    for row in rows:
        text += "| {pipeline} | {rounds} | {native_s:.2f} | {control:.2f} | {preload:.2f} | {both:.2f} | {both_to_preload:.2f} |\n".format(**row)
    return text


def verdict(rows: list[dict[str, object]]) -> str:
    """Which of them miss the aims, by more than the control's distance from 1."""

    def over(row: dict[str, object], key: str, aim: float) -> bool:
        return row[key] > aim + abs(row["control"] - 1)

    beside = [row["pipeline"] for row in rows if over(row, "both_to_preload", AIM_BOTH_TO_PRELOAD)]
    native = [row["pipeline"] for row in rows if over(row, "both", AIM_TO_NATIVE)]
    return (
        f"The default within 3% of `--preload-only`: {len(rows) - len(beside)} of {len(rows)}{': not ' + '; '.join(beside) if beside else ''}. "
        f"Within 10% of native: {len(rows) - len(native)} of {len(rows)}{': not ' + '; '.join(native) if native else ''}. "
        "What lies within the control's own distance from 1.00 is not counted as more.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terrace", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=11, help="for all of it")
    parser.add_argument("--only", default="", help="pipelines whose names have this in them")
    parser.add_argument("--base", default="/var/tmp", help="where the root lies")
    parser.add_argument("--no-write", action="store_true", help="print the results and leave those that are published")
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes
    facts = {**provenance("benchmarks/pipelines/run.sh"), "load_before": os.getloadavg()[0]}
    if facts["load_before"] > 1:
        print(f"pipelines: the machine is busy (load {facts['load_before']:.1f}): ratios will scatter", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("pipelines: told to end"))
    place = Place(args.base, args.terrace)
    rows, missing, failed, start = [], [], [], None
    wanted = [pipeline for pipeline in PIPELINES if args.only in pipeline.name]
    try:
        for number, pipeline in enumerate(wanted):
            if time.monotonic() > ends:
                missing.append(f"{pipeline.name} (no time was left: --minutes)")
                print(f"pipelines: SKIPPED {missing[-1]}", file=sys.stderr, flush=True)
                continue
            until = time.monotonic() + max(ends - time.monotonic(), 0) / (len(wanted) - number + 1)
            lacking = [program for program in pipeline.needs if shutil.which(program) is None]
            if not lacking:
                try:
                    place.sh(pipeline.probe, place.base)
                except Failed:
                    lacking = [pipeline.needs[-1]]
            if lacking:
                missing.append(f"{pipeline.name} ({', '.join(lacking)})")
                print(f"pipelines: SKIPPED {missing[-1]}: not installed", file=sys.stderr, flush=True)
                continue
            try:
                rows.append(place.measure(pipeline, args.rounds, until))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
            except Failed as reason:
                failed.append(f"{pipeline.name}: {reason}")
                print(f"pipelines: FAILED {failed[-1]}", file=sys.stderr, flush=True)
        if not args.only:
            start = place.measure_start(args.rounds, time.monotonic() + 20)
    finally:
        place.remove()
    if not rows:
        sys.exit("pipelines: nothing was measured")
    text = "# Programs of many processes\n\n" + provenance_line(facts)
    text += f" Load before: {facts['load_before']:.1f}.\n"
    text += f"\nMedians of up to {args.rounds} rounds by turns; ratios are to the native time of the same round, and the control is a second native"
    text += " run. The root is on a local disk, the tier in memory. The recipe is [`benchmarks/pipelines`](../pipelines/).\n"
    if missing:
        text += f"\nNot measured (in brackets what is not installed): {'; '.join(missing)}.\n"
    if failed:
        text += f"\nFailed: {'; '.join(failed)}.\n"
    text += f"\n{table(rows)}\n{verdict(rows)}"
    if start:
        text += "\nStarting and ending a run of `true`: {native_s:.4f} s natively, {preload_s:.3f} s with `--preload-only`, {both_s:.3f} s by default.\n".format(**start)
    if not (args.no_write or args.only):
        (RESULTS / "pipelines.md").write_text(text)
        (RESULTS / "pipelines.json").write_text(json.dumps({**facts, "missing": missing, "failed": failed, "start": start, "measured": rows}, indent=1) + "\n")
    print(text)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
