"""The 14-run experiment of the paper about IORE, one variable of 1152 x 576 x 94 float32 and up to 4 tasks: on local disk, and
with 1 ms added to each request, where the number of requests is what counts.

Writes results/paper.json and results/paper.md. Called by paper.sh. `--part local` and `--part slow` measure one of the two and
keep what the results have of the other.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

BENCH = REPOSITORY / "target" / "release" / "terrace-bench"
FOURTEEN = REPOSITORY / "crates" / "bench" / "tests" / "bench" / "fourteen.json"
MIB = 2**20
WAYS = {
    "POSIX, row by row": {"backend": {"posix": {"added_delay": "1ms"}}},
    "POSIX, coalesced": {"backend": {"posix": {"added_delay": "1ms"}}, "coalesce": "on"},
    "MPI-IO, collective and view": {"backend": {"mpiio": {"collective": True, "view": True, "added_delay": "1ms"}}},
}


def rows_of(experiment: dict, directory: str, replications: int, turn: list[str]) -> list[dict]:
    """Each replication by itself, so that others get a turn between two."""
    return [row for seed in range(replications) for row in replication_of({**experiment, "seed": seed, "replications": 1}, directory, turn)]


def replication_of(experiment: dict, directory: str, turn: list[str]) -> list[dict]:
    with tempfile.TemporaryDirectory() as work:
        place = tempfile.mkdtemp(dir=directory)
        try:
            path = pathlib.Path(work, "experiment.json")
            path.write_text(json.dumps({**experiment, "directory": place}))
            subprocess.run([*turn, BENCH, "run", "--quiet", "--output", f"{work}/out", path], check=True, stdout=subprocess.DEVNULL)
            return [json.loads(line) for line in pathlib.Path(work, "out", "rows.jsonl").read_text().splitlines()]
        finally:
            shutil.rmtree(place)


def summary(rows: list[dict]) -> dict:
    seconds = sorted(row["elapsed_s"] for row in rows)
    return {
        "median_s": statistics.median(seconds),
        "least_s": seconds[0],
        "most_s": seconds[-1],
        "median_mib_s": statistics.median(row["rate_bytes_s"] for row in rows) / MIB,
        "requests": rows[0]["requests"],
        "bytes": rows[0]["bytes"],
        "replications": len(rows),
    }


def local(replications: int, directory: str, turn: list[str]) -> list[dict]:
    rows = rows_of(json.loads(FOURTEEN.read_text()), directory, replications, turn)
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        factors = row["factors"]
        groups.setdefault((factors["num_tasks"], factors["file_mode"], factors["afio"], row["operation"]), []).append(row)
    names = ("num_tasks", "file_mode", "afio", "operation")
    return [{**dict(zip(names, key)), **summary(group)} for key, group in sorted(groups.items())]


def slow(replications: int, directory: str, turn: list[str]) -> list[dict]:
    experiment = json.loads(FOURTEEN.read_text())
    workload = {"dataset": {**experiment["base"]["workload"]["dataset"], "divisions": [2, 2, 1]}}
    rows = rows_of(
        {
            "base": {"workers": 4, "operations": ["write"], "flush": "never", "workload": workload},
            "factors": {"way": WAYS},
        },
        directory,
        replications,
        turn,
    )
    found = [{"way": way, **summary([row for row in rows if row["factors"]["way"] == way])} for way in WAYS]
    for line in found:
        line["times_faster_than_rows"] = found[0]["median_s"] / line["median_s"]
    return found


def page(document: dict) -> str:
    lines = ["# The paper's experiment", "", "One variable of 1152 × 576 × 94 float32 (238 MiB), written and read by 2 and 4 tasks.", ""]
    if part := document.get("slow"):
        lines += ["## 1 ms added to each request", "", provenance_line(part["provenance"]), "", "Four tasks write the shared file. Medians of all replications, least and most in brackets.", ""]
        lines += ["| way | requests | seconds | times faster than row by row |", "| --- | ---: | ---: | ---: |"]
        for row in part["runs"]:
            lines.append(f"| {row['way']} | {row['requests']} | {row['median_s']:.2f} ({row['least_s']:.2f}–{row['most_s']:.2f}) | {row['times_faster_than_rows']:.1f} |")
        lines.append("")
    if part := document.get("local"):
        lines += ["## Local disk", "", provenance_line(part["provenance"]), "", f"Medians of {part['runs'][0]['replications']} replications, MiB/s; not flushed, so this is mostly what the calls cost.", ""]
        lines += ["| tasks | files | calls | write | read |", "| ---: | --- | --- | ---: | ---: |"]
        rates = {(run["num_tasks"], run["file_mode"], run["afio"], run["operation"]): run["median_mib_s"] for run in part["runs"]}
        for tasks, mode, afio in dict.fromkeys(key[:3] for key in rates):
            lines.append(f"| {tasks} | {mode} | {afio} | {rates[tasks, mode, afio, 'write']:.0f} | {rates[tasks, mode, afio, 'read']:.0f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["local", "slow", "both"], default="both")
    parser.add_argument("--replications", type=int, default=3)
    parser.add_argument("--directory", default="/var/tmp", help="on the storage to measure")
    parser.add_argument("--turn", default="", help="a command that runs each replication when the machine is free for it")
    args = parser.parse_args()
    results = RESULTS / "paper.json"
    document = json.loads(results.read_text()) if results.exists() else {}
    for part, measure in (("slow", slow), ("local", local)):
        if args.part in (part, "both"):
            facts = provenance(f"benchmarks/instrument/paper.sh --part {part} --replications {args.replications}")
            document[part] = {"provenance": facts, "runs": measure(args.replications, args.directory, args.turn.split())}
    results.write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / "paper.md").write_text(page(document))
    print(page(document))


if __name__ == "__main__":
    main()
