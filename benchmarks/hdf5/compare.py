#!/usr/bin/env python3
"""How long an unmodified h5py program takes to write 256 MB in 64 steps: natively, under `terrace run`, and under `terrace run --hdf5`, by turns;
with the durable tier on a local file system, and on one with a bandwidth and a latency (`terrace-slowfs`, for root).

Figures are medians over rounds; a ratio is the median of the rounds' ratios, natively over Terrace: above 1 Terrace is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().parent / "worker.py"
SLOW = ["--write-mib", "100", "--latency-us", "500"]
WAYS = {"native": None, "file": [], "connector": ["--hdf5"]}
AIMS = {("slow", "sees"): 3.0, ("slow", "durable"): 1.0, ("local", "durable"): 1.0}


class Worker:
    """A program that stays, with its root and its tier."""

    def __init__(self, binaries: pathlib.Path, base: pathlib.Path, memory: pathlib.Path, flags: list[str] | None) -> None:
        root, own = base / "root", memory / "own"
        for directory in (root, own, own / "tier"):
            directory.mkdir(parents=True)
        command = [sys.executable, WORKER]
        if flags is not None:
            settings = ["--root", root, "--tier", f"ram={own}/tier:2GiB", "--state", own / "state", "--runtime", own / "run"]
            flush = [binaries / "terrace", "flush", *settings]
            command = [binaries / "terrace", "run", "--quiet", *settings, *flags, "--", *command, *flush]
        words = [str(word) for word in command]
        self.process = subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def seconds(self, layout: str, way: str) -> float:
        assert self.process.stdin and self.process.stdout
        print(layout, way, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(timeout=300) == 0


def measure(binaries: pathlib.Path, base: pathlib.Path, memory: pathlib.Path, rounds: int) -> list[dict[str, object]]:
    workers = {name: Worker(binaries, base / name, memory / name, flags) for name, flags in WAYS.items()}
    rows = []
    for layout in ("contiguous", "chunked"):
        for way in ("sees", "durable"):
            times: dict[str, list[float]] = {name: [] for name in WAYS}
            for number in range(-1, rounds):
                for name in list(WAYS)[:: 1 if number % 2 else -1]:
                    os.sync()
                    taken = workers[name].seconds(layout, way)
                    if number >= 0:
                        times[name].append(taken)
            row: dict[str, object] = {"layout": layout, "way": way, "seconds": {name: statistics.median(times[name]) for name in WAYS}}
            for name in ("file", "connector"):
                row[f"ratio_{name}"] = statistics.median(a / b for a, b in zip(times["native"], times[name], strict=True))
            rows.append(row)
            print(f"{base}: {row}", flush=True)
    for worker in workers.values():
        worker.end()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, type=pathlib.Path, help="the directory of terrace and its libraries")
    parser.add_argument("--base", default="/var/tmp", help="a directory of the local file system")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--note", default="", help="what else is to be known, such as who else used the machine")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    arguments = parser.parse_args()
    facts = provenance("benchmarks/hdf5/run.sh")
    results = {}
    with tempfile.TemporaryDirectory(dir=arguments.base) as base, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        places = {"local": pathlib.Path(base) / "local"}
        places["local"].mkdir()
        if os.geteuid() == 0:
            source, mount = pathlib.Path(base) / "source", pathlib.Path(base) / "slow"
            source.mkdir()
            mount.mkdir()
            subprocess.run([arguments.binaries / "terrace-slowfs", "--source", source, "--mount", mount, *SLOW], check=True)
            places["slow"] = mount
        try:
            for key, place in places.items():
                results[key] = measure(arguments.binaries, place, pathlib.Path(memory) / key, arguments.rounds)
        finally:
            if "slow" in places:
                subprocess.run(["umount", places["slow"]], check=True)
    names = {"local": "local file system", "slow": f"slow file system ({' '.join(SLOW)})"}
    ways = {"sees": "until the file is closed", "durable": "until it is durable"}
    lines = [
        "# HDF5: 256 MB by an unmodified program",
        "",
        provenance_line(facts) + (f" {arguments.note}" if arguments.note else ""),
        "",
        "h5py writes 64 steps of 500 × 1000 float64 into one dataset. *file*: `terrace run`; *connector*: `terrace run --hdf5`, which",
        "puts the same cells as an array beside the file. Ratios: natively over Terrace, so above 1 Terrace is faster.",
        "",
        "| durable tier | dataset | seconds | natively | file | connector | file, ratio | connector, ratio | aim |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key, rows in results.items():
        for row in rows:
            times, aim = row["seconds"], AIMS.get((key, str(row["way"])))
            assert isinstance(times, dict)
            cells = [names[key], row["layout"], ways[str(row["way"])], *(f"{times[name]:.3f}" for name in WAYS)]
            cells += [f"{row['ratio_file']:.2f}", f"{row['ratio_connector']:.2f}", f"{aim:.1f}" if aim else "–"]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    if not arguments.no_write:
        aims = {" ".join(key): aim for key, aim in AIMS.items()}
        (RESULTS / "hdf5.json").write_text(json.dumps({**facts, "aims": aims, **results}, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "hdf5.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
