#!/usr/bin/env python3
"""Compares file operations natively and under `terrace run`, side by side.

Three workers (worker.c) run at the same time: one native, one under Terrace, and a second native one as control. In each
round each of them does the same operation, in an order that changes from round to round. A ratio is the median over rounds
of (worker's time / native worker's time in that round), so a machine that slows down for a while slows both sides.
The control's ratio would be 1.00 on a quiet machine: it tells how far to trust the others.

Places (each ratio is to the same operation on the root's own file system, natively; in a placed directory, to the same one on plain
files in the tier's own storage, natively):
  root, durable     a real file in the root, that was there before the run
  root, in tier     a file that the run made: its bytes lie in the tier, the root has a link
  placed directory  a file in a directory that the run made, which lies in the tier as a whole
  outside           a path that isn't below the root

Two more are done natively:
  plain tier   (of "root, in tier") the same operation on plain files in the tier's own storage: what the storage costs
  least        the least that such a way can cost; the rest is what Terrace costs. Where files are reached by links, the same
               operation on files in the tier's storage that are reached by a symbolic link on the root's disk, of the file (for
               create + unlink: file and link made and removed; for lstat: a look at each) or of its directory. Elsewhere, and
               where programs are started, a process with a preloaded library that has nothing in it, and a seccomp filter that
               lets every call pass.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

BATCH_NS = 12_000_000  # one batch of operations takes about so long: much longer than a clock tick or an interrupt
FILE_MIB = 16  # FILE_BYTES of worker.c
# ext4 without a journal doesn't use an inode again for minutes after its file was removed, and looks at each such inode of a
# group of directories when it makes a new one: thousands of removed files would make every later number a measure of them.
# So there are few in a batch, and all workers make their files in one directory: they meet the same inodes.
CREATE_COUNT_MAX = 20
TAR_FILES = 5_000
GIT_FILES = 1_000

# Ratios that the project aims at.
OPEN_AIM, CREATE_AIM, DATA_AIM, PLACED_AIM, OUTSIDE_AIM = 1.10, 1.50, 1.00, 1.10, 1.05


class Worker:
    """One process of worker.c, asked over pipes."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str] | None = None):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )

    def ask(self, operation: str, count: int, argument: str) -> int:
        """Nanoseconds for `count` operations."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{operation} {count} {argument}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"micro: the {self.name} worker ended while doing `{operation} {argument}` (its message is above)")
        return int(answer)

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(timeout=300)


# Prepares the files of one place. Run by a worker, so that Terrace places what its worker makes.
PREPARE = f"""
set -e; cd "$1"
printf x > small; chmod 644 small
dd if=/dev/zero of=data bs=1M count={FILE_MIB} status=none
mkdir names work many; cd names; seq -f n%g 0 999 | xargs touch; cd ..
(cd many; seq 0 49 | xargs mkdir)
python3 -c '
for i in range({TAR_FILES}):
    with open("many/%d/f%d" % (i % 50, i), "wb") as file: file.write(b"%d\\n" % i * 200)
'
mkdir repository; cd repository; git init -q .; git config user.email bench@example.invalid; git config user.name bench
seq -f d%g 0 19 | xargs mkdir
i=0; while [ $i -lt {GIT_FILES} ]; do echo $i > d$((i % 20))/f$i; i=$((i + 1)); done
git add -A; git -c gc.auto=0 commit -q -m files; sleep 1.1; git status --porcelain
"""


def operations(directory: str) -> list[tuple[str, str, str]]:
    """(shown, worker's operation, argument) on the files that PREPARE made in `directory`."""
    return [
        ("open + close", "open_close", f"{directory}/small"),
        ("stat", "stat", f"{directory}/small"),
        ("lstat", "lstat", f"{directory}/small"),
        ("create + unlink", "create_unlink", f"{directory}/work"),
        ("read 4 KiB", "read_4k", f"{directory}/data"),
        ("write 4 KiB", "write_4k", f"{directory}/data"),
        ("write 1 MiB", "write_1m", f"{directory}/data"),
        ("append 4 KiB to a new file", "append_4k", f"{directory}/work"),
        ("readdir of 1,000", "readdir", f"{directory}/names"),
        ("fork + exec of /bin/true", "fork_exec", directory),
        ("git status", "shell", f"git -C {directory}/repository status >/dev/null"),
        (f"tar of {TAR_FILES:,} files", "shell", f"tar -cf - -C {directory} many | cat >/dev/null"),
    ]


def linked_operations(directory: pathlib.Path, plain: pathlib.Path) -> list[tuple[str, str, str] | None]:
    """The least that the same operations cost on files behind links; `None` where there is nothing to compare."""
    instead = {"lstat": "lstat_linked"}
    kept = ("open_close", "stat", "lstat", "read_4k", "write_4k", "write_1m", "create_unlink")
    return [
        (shown, instead.get(operation, operation), argument) if operation in kept else None
        for shown, operation, argument in operations(str(directory))
    ]


def make_in_one_directory(arguments: dict[str, list], directory: str, objects: str) -> None:
    """Lets all workers whose files have a name on the root's disk make them in the same directory."""
    for name, rows in arguments.items():
        for index, row in enumerate(rows):
            if row is not None and row[1] == "create_unlink" and name in ("native", "control", "terrace", "linked"):
                linked = (row[0], "create_unlink_linked", f"{directory} {objects}")
                rows[index] = linked if name == "linked" else (row[0], row[1], directory)


def aim(shown: str, place: str) -> float | None:
    if place == "outside":
        return OUTSIDE_AIM
    if place == "placed directory":
        is_aimed_at = shown.startswith(("open", "stat", "lstat", "create", "readdir", "git", "tar"))
        return PLACED_AIM if is_aimed_at else None
    if shown in ("open + close", "stat", "lstat"):
        return OPEN_AIM
    if shown.startswith("create"):
        return CREATE_AIM
    if shown.startswith(("read 4", "write")):
        return DATA_AIM
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True, help="the compiled worker.c")
    parser.add_argument("--empty", required=True, help="a compiled library that has nothing in it")
    parser.add_argument("--terrace", required=True, help="the terrace binary")
    parser.add_argument("--base", default="/var/tmp", help="where the root and the outside directory are made")
    parser.add_argument("--tier", default="/dev/shm", help="the tier's directory; Terrace makes its own below it")
    parser.add_argument("--rounds", type=int, default=15, help="at least 7")
    parser.add_argument("--only", help="measure only operations whose name has this in it")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    options = parser.parse_args()
    options.rounds = max(options.rounds, 7)

    base = pathlib.Path(tempfile.mkdtemp(prefix="terrace-micro-", dir=options.base))
    plain = pathlib.Path(tempfile.mkdtemp(prefix="terrace-micro-", dir=options.tier))
    try:
        return compare(options, base, pathlib.Path(options.tier), plain)
    finally:
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(plain, ignore_errors=True)


def compare(options: argparse.Namespace, base: pathlib.Path, tier: pathlib.Path, plain: pathlib.Path) -> int:
    # The native worker's root and Terrace's root are twins: same file system, same depth, names of the same length.
    roots = {"native": base / "root-n", "control": base / "root-c", "terrace": base / "root-t"}
    placed_root = base / "root-p"
    # Outside, all use the same files: nothing but the way of the call differs.
    outside = dict.fromkeys(roots, base / "away")
    for directory in {*roots.values(), *outside.values(), placed_root}:
        for place in ("durable", "in-tier"):
            (directory / place).mkdir(parents=True)
    configs = {
        "terrace": configuration(base, roots["terrace"], tier, "off"),
        "placed": configuration(base, placed_root, tier, "scratch"),
    }
    prepare = base / "prepare.sh"
    prepare.write_text(PREPARE, encoding="utf-8")
    for directory in [*(root / "durable" for root in roots.values()), base / "away" / "durable", plain]:
        subprocess.run(["sh", str(prepare), str(directory)], check=True)

    # Pre-touch: the tier's memory is faulted in before it is measured.
    touch = tier / f"terrace-micro-{os.getpid()}"
    touch.write_bytes(b"\1" * (256 << 20))
    touch.unlink()

    cpu = str((os.cpu_count() or 1) - 1)  # away from CPU 0, which serves most interrupts
    workers = {"native": Worker("native", [options.worker, cpu]), "control": Worker("control", [options.worker, cpu])}
    for name, config in configs.items():
        launch = [options.terrace, "run", "--config", str(config), "--quiet", "--", options.worker, cpu]
        workers[name] = Worker(name, launch)
    for name, root in roots.items():
        workers[name].ask("shell", 1, f"sh {prepare} {root}/in-tier")
    made = placed_root / "in-tier" / "made"
    workers["placed"].ask("shell", 1, f"mkdir {made} && sh {prepare} {made}")
    # It, or the empty one that it was made in.
    if not made.resolve().is_relative_to(tier.resolve()):
        sys.exit("micro: the directory that the run made is not placed in the tier, so there is nothing to compare")
    placed = sum(1 for path in (roots["terrace"] / "in-tier").rglob("*") if path.is_symlink())
    if placed < 1000:
        sys.exit(f"micro: only {placed} files of the run were placed in the tier, so there is nothing to compare")

    workers["plain"] = Worker("plain", [options.worker, cpu])
    workers["linked"] = Worker("linked", [options.worker, cpu])
    workers["hollow"] = Worker("hollow", [options.worker, cpu, "filtered"], {"LD_PRELOAD": options.empty})
    (base / "linked").mkdir()
    for name in ("small", "data"):
        (base / "linked" / name).symlink_to(plain / name)
    linked_directory = base / "linked" / "in-tier" / "made"  # as deep as `made`
    linked_directory.parent.mkdir()
    linked_directory.symlink_to(plain)
    places = {"root, durable": (roots, "durable"), "root, in tier": (roots, "in-tier"), "outside": (outside, "durable")}
    measured = []
    for place, (directories, below) in places.items():
        arguments = {name: operations(str(directories[name] / below)) for name in roots}
        arguments["hollow"] = arguments["native"]
        if below == "in-tier":
            arguments["plain"] = operations(str(plain))
            arguments["linked"] = linked_operations(base / "linked", plain)
            arguments["hollow"] = [row if row[1] == "fork_exec" else None for row in arguments["native"]]
            make_in_one_directory(arguments, str(roots["terrace"] / below / "work"), str(plain / "work"))
        measured.append((place, workers, arguments))
    inside = {"native": plain, "control": plain, "terrace": made}
    arguments = {name: operations(str(directory)) for name, directory in inside.items()}
    arguments["linked"] = [row if row[1] != "fork_exec" else None for row in operations(str(linked_directory))]
    arguments["hollow"] = [row if row[1] == "fork_exec" else None for row in arguments["native"]]
    measured.append(("placed directory", {**workers, "terrace": workers["placed"]}, arguments))
    results = []
    for place, asked, arguments in measured:
        for index, (shown, operation, _) in enumerate(arguments["native"]):
            if options.only and options.only not in shown:
                continue
            if place == "root, durable" and operation in ("create_unlink", "append_4k", "fork_exec"):
                continue  # what is created is in the tier: see "root, in tier"
            results.append(measure(options.rounds, asked, arguments, index, place))
            print_row(results[-1], first=len(results) == 1)
    for name, worker in workers.items():
        status = worker.end()
        if status != 0:
            sys.exit(f"micro: the {name} worker ended with status {status}")

    facts = provenance("make bench")
    facts["rounds"] = options.rounds
    if not options.no_write and not options.only:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "micro.json").write_text(json.dumps({**facts, "results": results}, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "micro.md").write_text(page(facts, results), encoding="utf-8")
        print(f"\nwritten: {RESULTS}/micro.json and micro.md")
    return 0


def configuration(base: pathlib.Path, root: pathlib.Path, tier: pathlib.Path, directories: str) -> pathlib.Path:
    """Files of the run stay in the tier, and go with it: no mover runs beside the measurement. By default (`scratch`) the
    directories that the run makes are placed as a whole."""
    config = base / f"{root.name}.toml"
    config.write_text(
        f'root = "{root}"\ndirectories = "{directories}"\n[[tier]]\nname = "ram"\npath = "{tier}"\ncapacity = "2GiB"\n'
        '[policy]\nflush = ["nothing-is-flushed"]\nevict = ["in-tier/**"]\n',
        encoding="utf-8",
    )
    return config


def measure(rounds: int, workers: dict[str, Worker], arguments: dict[str, list], index: int, place: str) -> dict[str, object]:
    shown, operation, _ = arguments["native"][index]

    def ask(name: str, count: int) -> float:
        _, own_operation, argument = arguments[name][index]
        return workers[name].ask(own_operation, count, argument) / count

    count, count_max = 1, CREATE_COUNT_MAX if operation == "create_unlink" else 1_000_000
    while operation != "shell" and count < count_max and (took := ask("native", count) * count) < BATCH_NS:
        count = min(count_max, max(count + 1, min(count * 10, int(count * BATCH_NS / max(took, 1)) + 1)))
    order = [name for name in arguments if arguments[name][index] is not None]
    for name in order:  # warm
        ask(name, count)
    times: dict[str, list[float]] = {name: [] for name in order}
    for round_number in range(rounds):
        turn = round_number % len(order)
        for name in order[turn:] + order[:turn]:
            times[name].append(ask(name, count))

    def ratio(name: str) -> float:
        return statistics.median(mine / native for mine, native in zip(times[name], times["native"]))

    least = next((name for name in ("linked", "hollow") if name in times), None)
    return {
        "operation": shown,
        "place": place,
        "native_us": round(statistics.median(times["native"]) / 1000, 3),
        "terrace_us": round(statistics.median(times["terrace"]) / 1000, 3),
        "ratio": round(ratio("terrace"), 3),
        "control_ratio": round(ratio("control"), 3),
        "least_us": round(statistics.median(times[least]) / 1000, 3) if least else None,
        "least_ratio": round(ratio(least), 3) if least else None,
        "plain_tier_us": round(statistics.median(times["plain"]) / 1000, 3) if "plain" in times else None,
        "aim": aim(shown, place),
        "operations_per_batch": count,
    }


HEADER = ("operation", "place", "native µs", "Terrace µs", "ratio", "control", "aim", "least", "plain tier µs")


def cells(row: dict[str, object]) -> tuple[str, ...]:
    target = f"≤ {row['aim']:.2f}" if row["aim"] else "–"
    return (
        str(row["operation"]),
        str(row["place"]),
        f"{row['native_us']:,.2f}",
        f"{row['terrace_us']:,.2f}",
        f"{row['ratio']:.2f}",
        f"{row['control_ratio']:.2f}",
        target,
        f"{row['least_ratio']:.2f}" if row["least_ratio"] else "–",
        f"{row['plain_tier_us']:,.2f}" if row["plain_tier_us"] else "–",
    )


def print_row(row: dict[str, object], first: bool) -> None:
    layout = "{:<27} {:<16} {:>12} {:>12} {:>7} {:>8} {:>7} {:>9} {:>14}"
    if first:
        print(layout.format(*HEADER))
    print(layout.format(*cells(row)), flush=True)


def page(facts: dict[str, object], results: list[dict[str, object]]) -> str:
    lines = [
        "# File operations under Terrace, as ratios to native",
        "",
        provenance_line(facts),
        f"Medians of {facts['rounds']} interleaved rounds, one CPU. The recipe is [`benchmarks/micro`](../micro/); the numbers",
        "are in [`micro.json`](micro.json). *Control* is a second native process measured in the same rounds: how far it is",
        "from 1.00 is the noise. *Root, in tier* compares a file whose bytes lie in memory with a file on the root's own disk",
        "(`directories = \"off\"`); *plain tier* is natively on a plain file in the tier's storage.",
        "*Placed directory* compares a directory of the run that lies in memory as a whole with a plain one there: its *native* is",
        "in the tier's own storage.",
        "*Least* is the ratio of doing it natively by the least that such a way needs. For files in a tier and in a placed",
        "directory: reached by a symbolic link on the root's disk, of the file or of its directory. Elsewhere, and for exec: in a",
        "process with a preloaded library that has nothing in it, and a seccomp filter that lets every call pass.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in results]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
