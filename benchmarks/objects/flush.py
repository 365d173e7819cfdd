#!/usr/bin/env python3
"""How long 256 MiB of staged arrays take to become durable, beside write(2) and fsync(2) of the same bytes into one plain file for each
array, by turns: on a local file system, and on one with a bandwidth and a latency (`terrace-slowfs`, for root).

Figures are medians over rounds; the ratio is the median of the rounds' ratios. Memory was touched before.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

AIM = 1.1
COUNTS = [1, 4, 16]
SLOW = ["--write-mib", "400", "--latency-us", "500"]


def measure(binaries: pathlib.Path, base: pathlib.Path, memory: pathlib.Path, rounds: int) -> list[dict[str, object]]:
    root, plain = base / "root", base / "plain"
    for directory in (root, plain, memory / "tier"):
        directory.mkdir()
    command = [binaries / "terrace", "serve", "--quiet", "--root", root, "--tier", f"ram={memory}/tier:3GiB"]
    command += ["--state", memory / "state", "--runtime", memory / "run", "--flush", "!**"]
    agent = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout
        index = agent.stdout.readline().strip().removeprefix("export TERRACE_INDEX=")
        worker = subprocess.Popen([str(binaries / "flush"), index, str(plain)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def seconds(operation: str, count: int) -> float:
            assert worker.stdin and worker.stdout
            os.sync()
            print(operation, count, file=worker.stdin, flush=True)
            return float(worker.stdout.readline())

        rows = []
        for count in COUNTS:
            times: dict[str, list[float]] = {"terrace": [], "plain": []}
            for number in range(-1, rounds):
                for operation in ["terrace", "plain"][:: 1 if number % 2 else -1]:
                    taken = seconds(operation, count)
                    if number >= 0:
                        times[operation].append(taken)
            ratio = statistics.median(a / b for a, b in zip(times["terrace"], times["plain"], strict=True))
            rows.append({"arrays": count, "ratio": ratio, **{name: statistics.median(taken) for name, taken in times.items()}})
            print(f"{base}: {rows[-1]}", flush=True)
        assert worker.stdin
        worker.stdin.close()
        worker.wait(timeout=60)
        return rows
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, type=pathlib.Path, help="the directory of terrace and flush")
    parser.add_argument("--slowfs", type=pathlib.Path, help="the program terrace-slowfs")
    parser.add_argument("--base", default="/var/tmp", help="a directory of the local file system")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--note", default="", help="what else is to be known, such as who else used the machine")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    arguments = parser.parse_args()
    facts = provenance("benchmarks/objects/flush.sh")
    results = {}
    with tempfile.TemporaryDirectory(dir=arguments.base) as base, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        local, shm = pathlib.Path(base) / "local", pathlib.Path(memory)
        local.mkdir()
        (shm / "a").mkdir()
        results["local"] = measure(arguments.binaries, local, shm / "a", arguments.rounds)
        if arguments.slowfs and os.geteuid() == 0:
            source, mount = pathlib.Path(base) / "source", pathlib.Path(base) / "slow"
            source.mkdir()
            mount.mkdir()
            subprocess.run([arguments.slowfs, "--source", source, "--mount", mount, *SLOW], check=True)
            try:
                (shm / "b").mkdir()
                results["slow"] = measure(arguments.binaries, mount, shm / "b", arguments.rounds)
            finally:
                subprocess.run(["umount", mount], check=True)
    names = {"local": "local file system", "slow": f"slow file system ({' '.join(SLOW)})"}
    lines = [
        "# Arrays made durable",
        "",
        provenance_line(facts) + (f" {arguments.note}" if arguments.note else ""),
        "",
        f"256 MiB in so many arrays, beside write and fsync of the same bytes into as many plain files. Aim: at most {AIM} times.",
        "",
        "| durable tier | arrays | flush, s | write and fsync, s | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for key, rows in results.items():
        for row in rows:
            lines.append(f"| {names[key]} | {row['arrays']} | {row['terrace']:.3f} | {row['plain']:.3f} | {row['ratio']:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if not arguments.no_write:
        (RESULTS / "objects-flush.json").write_text(json.dumps({**facts, "aim": AIM, **results}, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "objects-flush.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
