#!/usr/bin/env python3
"""Objects beside memcpy and beside h5py, by turns.

Workers answer over pipes: `measure` (crates/client/examples) puts and gets regions of arrays, appends to bytes objects and
copies between the same buffers; hdf5.py does the same by h5py, in a file of the tier's storage (memory) and in one on the
durable tier. In each round each of them does its operation once, in an order that changes; with two clients, two workers of
a kind do it at the same time. Figures are medians over rounds; a ratio is the median of the rounds' ratios.

Copies:
  memcpy      between the program's own two buffers, which are the source of the puts and the target of the gets
  into tier   from the same source into mapped memory of the tier's storage; out of tier, from there into the same target
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

SIZES = {4 << 10: "4 KiB", 1 << 20: "1 MiB", 64 << 20: "64 MiB"}
# (key, kind of worker, operation)
TRANSFERS = [
    ("memcpy", "terrace", "copy"),
    ("into_tier", "terrace", "copy-in"),
    ("put", "terrace", "put"),
    ("out_of_tier", "terrace", "copy-out"),
    ("get", "terrace", "get"),
    ("h5py_put", "h5py", "put"),
    ("h5py_get", "h5py", "get"),
    ("h5py_durable_put", "h5py-durable", "put"),
    ("h5py_durable_get", "h5py-durable", "get"),
]
# (shown, Terrace's operation, the same by other means: (whose, operation))
CALLS = [
    ("append 2,880 bytes, memory touched before", "append", [("terrace", "write")]),
    ("append 2,880 bytes to a new object", "append-new", [("terrace", "write-new"), ("h5py", "append-new")]),
    ("read 2,880 bytes", "read", []),
    ("lock and release a region", "lock", []),
    ("open an array", "open", [("h5py", "open")]),
    ("stat an array", "stat", [("h5py", "stat")]),
    ("stat a bytes object", "stat-bytes", []),
    ("create an array", "create", [("h5py", "create")]),
    ("create a bytes object", "create-bytes", []),
]
MEANS = {("terrace", "write"): "write(2)", ("terrace", "write-new"): "write(2)", "h5py": "h5py"}
LARGE = [
    ("starting it", "terrace", "async-start"),
    ("starting it, 500 ms of computing, waiting: what is seen", "terrace", "async-computing"),
    ("starting it and waiting at once", "terrace", "async-wait"),
    ("the same, and a flush to the durable tier", "terrace", "async-durable"),
    ("h5py, same tier, written and closed", "h5py", "large"),
    ("h5py, durable tier, written and closed", "h5py-durable", "large"),
    ("h5py, durable tier, written, closed and synced", "h5py-durable", "large-synced"),
]
AIMS = {"copy": 0.90, "append_us": 1.0, "lock_us": 10.0, "visible": 0.35}


class Worker:
    def __init__(self, command: list[str]):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, operation: str, size: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{operation} {size}\n")
        self.process.stdin.flush()

    def answer(self) -> float:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"objects: the worker `{' '.join(self.command)}` ended early (its message is above)")
        return float(line)

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        if self.process.wait(timeout=300) != 0:
            sys.exit(f"objects: the worker `{' '.join(self.command)}` failed at its end")


def together(workers: list[Worker], operation: str, size: int = 0) -> list[float]:
    """Nanoseconds of one operation of each, done at the same time."""
    for worker in workers:
        worker.begin(operation, size)
    return [worker.answer() for worker in workers]


@contextlib.contextmanager
def served(arguments: argparse.Namespace, root: pathlib.Path, memory: pathlib.Path) -> Iterator[str]:
    """An agent; gives the path of its index. Nothing is flushed unless it is asked for: the mover does not disturb."""
    command = [arguments.binaries / "terrace", "serve", "--quiet", *settings(root, memory)]
    agent = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout
        line = agent.stdout.readline().strip()
        yield line.removeprefix("export TERRACE_INDEX=")
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(timeout=120)


def settings(root: pathlib.Path, memory: pathlib.Path) -> list[str]:
    (memory / "tier").mkdir()
    return ["--root", str(root), "--tier", f"ram={memory}/tier:4GiB", "--state", f"{root}.state",
            "--runtime", f"{memory}/run", "--flush", "!**"]  # fmt: skip


def transfers(workers: dict[str, list[Worker]], clients: int, rounds: int) -> list[dict[str, object]]:
    rows = []
    for size, shown in SIZES.items():
        times: dict[str, list[float]] = {key: [] for key, *_ in TRANSFERS}
        for number in range(-1, rounds):
            turn = number % len(TRANSFERS)
            for key, kind, operation in TRANSFERS[turn:] + TRANSFERS[:turn]:
                took = together(workers[kind][:clients], operation, size)
                if number >= 0:  # the first round warms
                    times[key].append(sum(size / one for one in took))
        row: dict[str, object] = {"size": shown, "bytes": size, "clients": clients}
        row |= {f"{key}_gb_s": round(statistics.median(rates), 2) for key, rates in times.items()}
        for key, beside in (("put", "memcpy"), ("put", "into_tier"), ("get", "memcpy"), ("get", "out_of_tier"),
                            ("put", "h5py_put"), ("get", "h5py_get")):  # fmt: skip
            ratios = [mine / other for mine, other in zip(times[key], times[beside])]
            row[f"{key}_to_{beside}"] = round(statistics.median(ratios), 3)
        rows.append(row)
    return rows


def calls(workers: dict[str, list[Worker]], supervised: Worker, rounds: int) -> list[dict[str, object]]:
    rows = []
    for shown, operation, others in CALLS:
        means = [("terrace", workers["terrace"][0], operation), ("supervised", supervised, operation)]
        means += [(MEANS.get((kind, other)) or MEANS[kind], workers[kind][0], other) for kind, other in others]
        times: dict[str, list[float]] = {name: [] for name, *_ in means}
        for number in range(-1, rounds):
            turn = number % len(means)
            for name, worker, act in means[turn:] + means[:turn]:
                took = together([worker], act)[0]
                if number >= 0:
                    times[name].append(took)
        rows.append({"call": shown} | {name: round(statistics.median(all_) / 1000, 3) for name, all_ in times.items()})
    return rows


def large(workers: dict[str, list[Worker]], rounds: int) -> list[dict[str, object]]:
    times: dict[str, list[float]] = {shown: [] for shown, *_ in LARGE}
    for number in range(rounds):
        turn = number % len(LARGE)
        for shown, kind, operation in LARGE[turn:] + LARGE[:turn]:
            times[shown] += together(workers[kind][:1], operation)
    return [{"way": shown, "ms": round(statistics.median(all_) / 1e6, 2)} for shown, all_ in times.items()]


def page(facts: dict[str, object], results: dict[str, list[dict[str, object]]]) -> str:
    def cell(value: object) -> str:
        return f"{value:,.2f}" if isinstance(value, float) else "–" if value is None else str(value)

    def table(header: list[str], rows: list[list[object]]) -> list[str]:
        return ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
                *("| " + " | ".join(cell(value) for value in row) + " |" for row in rows), ""]  # fmt: skip

    keys = [f"{key}_gb_s" for key, *_ in TRANSFERS]
    lines = [
        "# Objects beside memcpy and h5py",
        "",
        provenance_line(facts),
        f"Medians of {facts['rounds']} rounds by turns. The recipe is [`benchmarks/objects`](../objects/), the numbers are in",
        "[`objects.json`](objects.json). The tier is memory (`/dev/shm`), the durable tier the disk of `" + str(facts["base"]) + "`.",
        "",
        "## Put and get of whole regions",
        "",
        "GB/s, of both clients together where there are two. *memcpy* is between the program's own buffers; *into tier* and *out of",
        "tier* are memcpy between the same buffers and mapped memory of the tier's storage. All memory was touched before.",
        "",
        *table(["size, clients", "memcpy", "into tier", "put", "out of tier", "get", "h5py put", "h5py get",
                "h5py put, durable", "h5py get, durable"],
               [[f"{row['size']}, {row['clients']}", *(row[key] for key in keys)] for row in results["transfers"]]),
        *table(["size, clients", "put / memcpy", "put / into tier", "get / memcpy", "get / out of tier", "put / h5py's",
                "get / h5py's"],
               [[f"{row['size']}, {row['clients']}", *(row[key] for key in ("put_to_memcpy", "put_to_into_tier", "get_to_memcpy",
                 "get_to_out_of_tier", "put_to_h5py_put", "get_to_h5py_get"))] for row in results["transfers"]]),
        "## Calls",
        "",
        "Microseconds of one. *Supervised*: the program runs under `terrace run`, with the library and the supervisor.",
        "",
        *table(["call", "Terrace µs", "supervised µs", "write(2) µs", "h5py µs"],
               [[row["call"], row["terrace"], row["supervised"], row.get("write(2)"), row.get("h5py")] for row in results["calls"]]),
        "## 256 MB, as the program sees it",
        "",
        *table(["way", "ms"], [[row["way"], row["ms"]] for row in results["large"]]),
    ]  # fmt: skip
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, type=pathlib.Path, help="the directory of terrace and measure")
    parser.add_argument("--base", default="/var/tmp", help="the durable tier: where the root is made")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=["transfers", "calls", "large"], help="measure one part, and write nothing")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    arguments = parser.parse_args()
    arguments.binaries = arguments.binaries.resolve()
    facts = provenance("benchmarks/objects/run.sh")
    facts |= {"rounds": arguments.rounds, "base": arguments.base, "load_before": round(os.getloadavg()[0], 2)}
    with contextlib.ExitStack() as stack:
        disk = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="objects-", dir=arguments.base)))
        memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="objects-", dir="/dev/shm")))
        for directory in [disk / "root", disk / "other", *(memory / f"h5{n}" for n in "01"), *(disk / f"h5{n}" for n in "01")]:
            directory.mkdir()
        (memory / "other").mkdir()
        index = stack.enter_context(served(arguments, disk / "root", memory))
        measure = str(arguments.binaries / "measure")
        hdf5 = [sys.executable, str(pathlib.Path(__file__).with_name("hdf5.py"))]
        workers = {
            "terrace": [Worker([measure, str(number), index]) for number in range(2)],
            "h5py": [Worker([*hdf5, str(memory / f"h5{number}")]) for number in range(2)],
            "h5py-durable": [Worker([*hdf5, str(disk / f"h5{number}")]) for number in range(2)],
        }
        run = [str(arguments.binaries / "terrace"), "run", "--quiet", *settings(disk / "other", memory / "other"), "--"]
        supervised = Worker([*run, measure, "0"])
        begun = time.monotonic()
        results: dict[str, list[dict[str, object]]] = {}
        if arguments.only in (None, "transfers"):
            results["transfers"] = [row for clients in (1, 2) for row in transfers(workers, clients, arguments.rounds)]
        if arguments.only in (None, "calls"):
            results["calls"] = calls(workers, supervised, arguments.rounds)
        if arguments.only in (None, "large"):
            results["large"] = large(workers, max(3, arguments.rounds // 3))
        facts["seconds"] = round(time.monotonic() - begun)
        for worker in [*(worker for kind in workers.values() for worker in kind), supervised]:
            worker.end()
    if arguments.only:
        print(json.dumps(results, indent=1))
        return
    text = page(facts, results)
    print(text)
    if not arguments.no_write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "objects.json").write_text(json.dumps({**facts, "aims": AIMS, **results}, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "objects.md").write_text(text, encoding="utf-8")
        print(f"written: {RESULTS}/objects.json and objects.md")


if __name__ == "__main__":
    main()
