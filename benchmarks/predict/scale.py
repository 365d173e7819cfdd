#!/usr/bin/env python3
"""How long `terrace predict --simulate` itself takes, up to 10,000 nodes.

Writes benchmarks/results/predict-scale.json and predict-scale.md. Each job is simulated both ways (on the durable tier alone, with
Terrace), once, on one processor.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

# Nodes, processes on each, files of each process, iterations.
JOBS = [(10, 1, 1, 1), (100, 1, 1, 1), (1000, 1, 1, 1), (10000, 1, 1, 1), (10000, 1, 4, 5), (10000, 8, 1, 1), (10000, 8, 1, 5)]


def measure(nodes: int, processes: int, files: int, iterations: int) -> dict:
    data = nodes * processes * files
    command = [REPOSITORY / "target" / "release" / "terrace", "predict", "--json", "--simulate", "--runs", "1",
               "--nodes", nodes, "--processes", processes, "--iterations", iterations, "--input", f"{data}GiB", "--file-size", "1GiB",
               "--flush", "all", "--compute", f"{data * iterations * 36}s", "--cores", 32, "--fast-tier", "ram=64GiB,6GiB,2.5GiB",
               "--read-bandwidth", "1381MiB", "--write-bandwidth", "121MiB", "--disks", 440, "--servers", 44, "--network", "3GiB",
               "--metadata-rate", 20000]  # fmt: skip
    before = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    took_s = time.monotonic() - before
    if done.returncode != 0:
        raise SystemExit(f"predict-scale: {done.stderr.strip()}")
    ways = json.loads(done.stdout)["simulation"]
    events = sum(ways[way]["median_run"]["events"] for way in ("durable_alone", "terrace"))
    result = {"nodes": nodes, "processes": processes, "files": data, "iterations": iterations, "took_s": took_s, "events": events,
              "alone_s": ways["durable_alone"]["median_s"], "terrace_s": ways["terrace"]["median_s"],
              "memory_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}  # fmt: skip
    print(f"{nodes:6} nodes x {processes}, {data} files x {iterations}: {took_s:.2f} s, {events} events", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="leave results/ as it is")
    args = parser.parse_args()
    facts = {**provenance("benchmarks/predict/scale.py"), "load_before": os.getloadavg()[0]}
    jobs = [measure(*job) for job in JOBS]
    if args.no_write:
        return
    (RESULTS / "predict-scale.json").write_text(json.dumps({"provenance": facts, "jobs": jobs}, indent=2) + "\n")
    lines = ["# How long a simulation takes", "", provenance_line(facts), f"The machine's load was {facts['load_before']:.1f} before: on a quiet machine it takes less.", "", "Files of 1 GiB, read, computed on, written to memory and flushed to 440 disks behind 44 servers; both ways together, one seed. Memory is the most that any so far took.", ""]
    lines += ["| nodes | processes on each | files | iterations | events | the simulation took | memory | simulated: durable tier alone | with Terrace |", "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for job in jobs:
        lines.append(f"| {job['nodes']:,} | {job['processes']} | {job['files']:,} | {job['iterations']} | {job['events']:,} | {job['took_s']:.2f} s | {job['memory_mib']:.0f} MiB | {job['alone_s']:.0f} s | {job['terrace_s']:.0f} s |")
    (RESULTS / "predict-scale.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
