"""`terrace bench io500` on one machine: medians of a few rounds of each phase, and of the score.

Writes results/io500.json and results/io500.md. Called by run.sh. A stonewall below 300 s is no submission: these are numbers of this
machine at a scale that takes minutes.
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
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

BENCH = REPOSITORY / "target" / "release" / "terrace-bench"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--stonewall", type=int, default=5)
    parser.add_argument("--directory", default="/var/tmp")
    args = parser.parse_args()
    command = f"benchmarks/io500/run.sh --rounds {args.rounds} --workers {args.workers} --stonewall {args.stonewall}"
    facts = provenance(command)
    load = os.getloadavg()[0]
    rounds = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.directory) as place, tempfile.TemporaryDirectory() as results:
            words = ["io500", place, "--quiet", "--cold", "--workers", str(args.workers), "--stonewall", str(args.stonewall)]
            subprocess.run([BENCH, *words, "--output", f"{results}/out"], check=True, stdout=subprocess.DEVNULL)
            rounds.append(json.loads(pathlib.Path(results, "out", "io500.json").read_text()))
    (RESULTS / "io500.json").write_text(json.dumps({"provenance": facts, "load": load, "rounds": rounds}, indent=2) + "\n")
    lines = ["# The io500's phases", "", provenance_line(facts), "", f"`terrace bench io500` on one machine's disk with {args.workers} processes, a stonewall of {args.stonewall} s, and cold reads; medians of {args.rounds} rounds, least and most in brackets. The list wants 300 s. The machine's load was {load:.1f} before.", "", "| phase | rate | unit | seconds |", "| --- | --- | --- | ---: |"]
    for index, phase in enumerate(rounds[0]["phases"]):
        values = [one["phases"][index]["value"] for one in rounds]
        seconds = statistics.median(one["phases"][index]["seconds"] for one in rounds)
        lines.append(f"| {phase['name']} | {statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f}) | {phase['unit']} | {seconds:.2f} |")
    for name, key in [("bandwidth, GiB/s", "bandwidth_gib_s"), ("metadata, kIOPS", "iops_k"), ("score", "score")]:
        values = [one[key] for one in rounds]
        lines.append(f"| **{name}** | {statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f}) | | |")
    found = ", ".join(f"{one['found']} of {one['to_find']}" for one in rounds)
    lines += ["", f"Find found {found} files.", ""]
    (RESULTS / "io500.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
