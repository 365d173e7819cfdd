"""Reductions of one array by one, two and four agents, each on a processor of its own, asked from the first one's node; medians in ms, and
bytes that went between nodes, when what is read often has been gathered into large pages. Agents are on this machine's loopback: their processors and memory are their own, the network is not."""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

arguments = argparse.ArgumentParser()
arguments.add_argument("--mib", type=int, default=256, help="of the array [default: 256]")
arguments.add_argument("--rounds", type=int, default=7)
arguments.add_argument("--agents", default="1,2,4", help="as many as there are processors at most [default: 1,2,4]")
arguments.add_argument("--no-write", action="store_true", help="no results page")
asked = arguments.parse_args()

TERRACE = pathlib.Path(os.environ.get("TERRACE", HERE.parents[2] / "target/release/terrace"))
os.environ["TERRACE_QUERY"] = str(TERRACE.with_name("terrace-query"))
import terrace  # noqa: E402

CPUS = sorted(os.sched_getaffinity(0))
X = max(1, asked.mib // 2)
SHAPE = (X, 512, 512)
QUERIES = {
    "sum and mean of all": "SELECT sum(v), avg(v) FROM grid",
    "mean by x": "SELECT x, avg(v) FROM grid GROUP BY x ORDER BY x",
    "greatest by z": "SELECT z, max(v) FROM grid GROUP BY z ORDER BY z",
    "filter, count and sum": "SELECT count(*), sum(v) FROM grid WHERE v > 0.25",
    "sum of squares by y": "SELECT y, sum(v * v) FROM grid GROUP BY y ORDER BY y",
    "mean by classes of values": "SELECT round(v * 50) AS class, avg(v) FROM grid GROUP BY round(v * 50) ORDER BY class",
    "ten greatest": "SELECT v FROM grid ORDER BY v DESC LIMIT 10",
    "differences along x": "SELECT sum(abs(a.v - b.v)) FROM grid a JOIN grid b ON a.x = b.x + 1 AND a.y = b.y AND a.z = b.z",
}


class Served:
    """So many agents of a root of their own, with the array."""

    def __init__(self, count: int, cells: np.ndarray):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="terrace-nodes-", dir="/var/tmp"))
        self.tier = pathlib.Path(tempfile.mkdtemp(prefix="terrace-nodes-", dir="/dev/shm"))
        hosts, pinned = self.tier / "hosts", self.tier / "pinned"
        hosts.write_text("".join(f"127.0.0.{number + 1}\n" for number in range(count)))
        # The processor of a host's last number.
        cpus = " ".join(map(str, CPUS))
        pinned.write_text(f'#!/bin/bash\ncpus=({cpus})\nhost=$1; shift\nexec taskset -c ${{cpus[${{host##*.}} - 1]}} "$@"\n')
        pinned.chmod(0o755)
        command = [TERRACE, "serve", "--quiet", "--root", self.root, "--tier", f"ram={self.tier}/ram:4GiB", "--flush", "!**"]
        (self.tier / "ram").mkdir()
        command += ["--launcher", f"{pinned} {{host}}", "--hosts", hosts]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("export TERRACE_ROOT=")
        os.sched_setaffinity(0, {CPUS[0]})
        self.session = terrace.connect(self.root)
        array = self.session.create_container("grid").create_array(
            "v", SHAPE, "f8", chunks=(2, 512, 512), dimensions=["x", "y", "z"]
        )
        array[...] = cells

    def rows(self, query: str):
        return self.session.sql(query).arrow().to_pydict()

    def bytes_between(self, query: str) -> int:
        plan = "\n".join(str(value) for values in self.rows("EXPLAIN ANALYZE " + query).values() for value in values)
        units = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        moved = re.findall(r"bytes_transferred=([0-9.]+) ?([KMG]?i?B)?", plan)
        return int(sum(float(number) * units[unit or "B"] for number, unit in moved))

    def end(self):
        self.session = None
        gc.collect()  # the agents end when nobody is connected
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.tier, ignore_errors=True)


def same(one: dict, other: dict) -> bool:
    return all(np.allclose(list(a), list(b), rtol=1e-9) for a, b in zip(one.values(), other.values(), strict=True))


def main():
    facts = provenance("benchmarks/queries/nodes.sh " + " ".join(sys.argv[1:]))
    counts = [count for count in map(int, asked.agents.split(",")) if count <= len(CPUS)]
    cells = np.random.default_rng(7).random(SHAPE)
    served = {count: Served(count, cells) for count in counts}
    results = {}
    try:
        # What is read again and again is gathered into large pages, once; that is not measured.
        for agents in served.values():
            for _ in range(4):
                agents.rows(QUERIES["sum and mean of all"])
        time.sleep(5)
        for name, query in QUERIES.items():
            times = {count: [] for count in counts}
            expected = None
            for turn in range(asked.rounds + 1):
                for count, agents in served.items():
                    begun = time.perf_counter()
                    rows = agents.rows(query)
                    # The first time, ranges of extents are not known yet, and memory was not touched.
                    if turn > 0:
                        times[count].append(1e3 * (time.perf_counter() - begun))
                    expected = expected or rows
                    assert same(rows, expected), f"{name} by {count} agents"
            medians = {count: statistics.median(of) for count, of in times.items()}
            between = {count: agents.bytes_between(query) for count, agents in served.items() if count > 1}
            results[name] = {"ms": medians, "bytes": between}
            print(name, {count: f"{ms:.1f} ms" for count, ms in medians.items()}, between, flush=True)
    finally:
        for agents in served.values():
            agents.end()
    if asked.no_write:
        return
    head = "| query | " + " | ".join(f"{count} agent{'s' if count > 1 else ''}, ms" for count in counts)
    head += " | " + " | ".join(f"{count} agents: times as fast, KB between nodes" for count in counts if count > 1) + " |"
    lines = [head, "| --- |" + " ---: |" * (2 * len(counts) - 1)]
    for name, result in results.items():
        ms = result["ms"]
        row = [name, *(f"{ms[count]:.1f}" for count in counts)]
        row += [f"{ms[counts[0]] / ms[count]:.2f}, {result['bytes'][count] / 1e3:.1f}" for count in counts if count > 1]
        lines.append("| " + " | ".join(row) + " |")
    missing = [count for count in map(int, asked.agents.split(",")) if count not in counts]
    words = f"\n{', '.join(map(str, missing))} agents: pending, this machine has {len(CPUS)} processors.\n" if missing else ""
    page = f"# Queries by several agents\n\nOne array of {asked.mib} MiB of float64, in chunks of 4 MiB.\n\n{__doc__}\n\n"
    page += "\n".join(lines) + "\n" + words + "\n" + provenance_line(facts) + "\n"
    (RESULTS / "queries-nodes.md").write_text(page)
    (RESULTS / "queries-nodes.json").write_text(json.dumps({**facts, "results": results}, indent=1) + "\n")


main()
