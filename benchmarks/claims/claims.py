"""The interfaces that IORE's paper compares, on one shared file in requests of 376 bytes: POSIX, C streams, MPI-IO, and MPI-IO
collective with a file view; written and synced, and read with a cold cache.

Writes results/claims.json and results/claims.md. Called by run.sh; needs Open MPI.
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
WAYS = {
    "POSIX": {"backend": {"posix": {}}},
    "C streams": {"backend": {"cstream": {}}},
    "MPI-IO": {"backend": {"mpiio": {}}},
    "MPI-IO, collective with view": {"backend": {"mpiio": {"collective": True, "view": True}}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=5)
    parser.add_argument("--directory", default="/var/tmp")
    args = parser.parse_args()
    facts = provenance(f"benchmarks/claims/run.sh --replications {args.replications}")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.directory) as place, tempfile.TemporaryDirectory() as work:
        experiment = {
            "name": "interfaces",
            "directory": place,
            "seed": 7,
            "replications": args.replications,
            "base": {
                "workers": 4,
                "operations": ["write", "read"],
                "flush": "end",
                "cache": "cold",
                "reorder": {"shift": 1},
                "workload": {"dataset": {"dimensions": [1152, 576, 94], "divisions": [4, 1, 1]}},
            },
            "factors": {"way": WAYS},
        }
        path = pathlib.Path(work, "experiment.json")
        path.write_text(json.dumps(experiment))
        subprocess.run([BENCH, "run", "--quiet", "--output", f"{work}/out", path], check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in pathlib.Path(work, "out", "rows.jsonl").read_text().splitlines()]
    table = []
    for way in WAYS:
        line: dict[str, object] = {"way": way}
        for operation in ("write", "read"):
            rates = [row["rate_bytes_s"] / 2**20 for row in rows if row["factors"]["way"] == way and row["operation"] == operation]
            line |= {operation: statistics.median(rates), f"{operation}_variation": statistics.stdev(rates) / statistics.mean(rates)}
        table.append(line)
    posix = table[0]
    (RESULTS / "claims.json").write_text(json.dumps({"provenance": facts, "load": load, "interfaces": table}, indent=2) + "\n")
    lines = ["# Interfaces on a shared file", "", provenance_line(facts), "", f"One variable of 1152 × 576 × 94 float32 (238 MiB) in rows of 376 bytes, divided among four tasks; written and synced, read cold by another task than wrote it, on the local disk. Medians of {args.replications} replications, MiB/s; *variation* is standard deviation over mean. The machine's load was {load:.1f} before.", "", "| calls | write | variation | of POSIX | read | variation | of POSIX |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for line in table:
        lines.append(f"| {line['way']} | {line['write']:.0f} | {line['write_variation']:.0%} | {line['write'] / posix['write']:.2f} | {line['read']:.0f} | {line['read_variation']:.0%} | {line['read'] / posix['read']:.2f} |")
    (RESULTS / "claims.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
