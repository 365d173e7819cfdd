"""`terrace bench`, fio and a bare loop of pwrite on the same pattern, taking turns; and how closely workers start.

Writes results/instrument.json and results/instrument.md. Called by run.sh.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

BENCH = REPOSITORY / "target" / "release" / "terrace-bench"
MIB = 2**20
DATA = "data"

# Name, directory kind, fio's words, request, bytes, direct. Patterns that fio has as well, closed loop, one request at a time.
PATTERNS = [
    ("sequential write, 1 MiB, memory", "memory", "write", 1 << 20, 512 * MIB, False),
    ("sequential write, 4 KiB, memory", "memory", "write", 4096, 256 * MIB, False),
    ("sequential write, 1 MiB, direct", "disk", "write", 1 << 20, 256 * MIB, True),
    ("random read, 4 KiB, direct", "disk", "randread", 4096, 32 * MIB, True),
    ("sequential read, 1 MiB, direct", "disk", "read", 1 << 20, 512 * MIB, True),
]


# Reads whose check is weighed: name, directory kind, request, bytes, direct.
CHECKED = [
    ("1 MiB, direct", "disk", 1 << 20, 512 * MIB, True),
    ("1 MiB, memory", "memory", 1 << 20, 512 * MIB, False),
    ("4 KiB, memory", "memory", 4096, 128 * MIB, False),
]


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, by order statistics, at 95% or the most that so few values give."""
    ordered, count = sorted(values), len(values)
    best = 1
    for rank in range(1, count // 2 + 1):
        covered = 1 - 2 * sum(math.comb(count, below) for below in range(rank)) / 2**count
        if covered >= 0.95:
            best = rank
    return ordered[best - 1], ordered[count - best]


def fio(directory: pathlib.Path, pattern: str, request: int, size: int, direct: bool) -> float:
    """MiB/s of one fio job; reads are of the file that is there, writes make it anew."""
    command = [
        "fio", "--name=job", f"--filename={directory / DATA}", f"--rw={pattern}", f"--bs={request}", f"--size={size}",
        f"--direct={int(direct)}", "--ioengine=psync", "--output-format=json", "--fallocate=none", "--end_fsync=0",
        "--randrepeat=0", "--norandommap=0", "--thread=0", "--invalidate=1",
    ]  # fmt: skip
    job = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["jobs"][0]
    side = job["read"] if "read" in pattern else job["write"]
    return side["io_bytes"] / (side["runtime"] / 1e3) / MIB if side["runtime"] >= 100 else side["bw_bytes"] / MIB


def bench(directory: pathlib.Path, experiment: dict) -> list[dict]:
    """Rows of one experiment."""
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work, "experiment.json")
        path.write_text(json.dumps({"directory": str(directory), "replications": 1, **experiment}))
        subprocess.run([BENCH, "run", "--quiet", "--output", f"{work}/out", path], check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in pathlib.Path(work, "out", "rows.jsonl").read_text().splitlines()]


def ours(directory: pathlib.Path, pattern: str, request: int, size: int, direct: bool, seed: int, verify: bool | str = False) -> dict:
    """The same pattern on the same file; reads are not checked unless it is asked for, as fio's are not."""
    read = "read" in pattern
    rows = bench(
        directory,
        {
            "seed": seed,
            "base": {
                "operations": ["read" if read else "write"],
                "flush": "never",
                "cache": "cold" if direct and read else "as_is",
                "verify": verify,
                "keep": True,
                "file_name": DATA,
                "backend": {"posix": {"direct": direct}},
                "workload": {
                    "offset": {"pattern": "random" if pattern.startswith("rand") else "sequential", "data_size": size, "request_size": request}
                },
            },
        },
    )
    return rows[-1]


def side_by_side(places: dict[str, pathlib.Path], rounds: int, patterns: list[tuple]) -> list[dict]:
    results = []
    for name, kind, pattern, request, size, direct in patterns:
        place, read = places[kind], "read" in pattern
        if read:
            ours(place, "write", 1 << 20, size, False, 0)
        theirs, own = [], []
        for turn in range(rounds):
            pairs = [(theirs, lambda: fio(place, pattern, request, size, direct)), (own, lambda: ours(place, pattern, request, size, direct, turn)["rate_bytes_s"] / MIB)]
            for into, measure in pairs if turn % 2 else reversed(pairs):
                if not read:
                    (place / DATA).unlink(missing_ok=True)
                # What others left dirty is on the disk before, not meanwhile.
                os.sync()
                into.append(measure())
        (place / DATA).unlink()
        (low_a, high_a), (low_b, high_b) = interval(theirs), interval(own)
        overlap = low_b <= high_a * 1.05 and low_a <= high_b * 1.05
        ratio = statistics.median(b / a for a, b in zip(theirs, own))
        results.append(
            {"pattern": name, "turns": rounds, "fio": statistics.median(theirs), "fio_interval": [low_a, high_a], "terrace_bench": statistics.median(own), "terrace_bench_interval": [low_b, high_b], "ratio": ratio, "overlap_within_5_percent": overlap}
        )
        print(f"{name:34} fio {statistics.median(theirs):9.1f} [{low_a:.1f}, {high_a:.1f}]  terrace bench {statistics.median(own):9.1f} [{low_b:.1f}, {high_b:.1f}] MiB/s, {ratio:.3f} of fio, {'overlap' if overlap else 'APART'}", flush=True)
    return results


def checking(places: dict[str, pathlib.Path], rounds: int) -> list[dict]:
    """A sequential read by fio, and by the tool without a check, with its check behind the measured time, and within it."""
    results = []
    for name, kind, request, size, direct in CHECKED:
        place = places[kind]
        ours(place, "write", 1 << 20, size, False, 0)
        ways = {
            "fio": lambda: fio(place, "read", request, size, direct),
            "off": lambda: ours(place, "read", request, size, direct, 0)["rate_bytes_s"] / MIB,
            "after": lambda: ours(place, "read", request, size, direct, 0, True)["rate_bytes_s"] / MIB,
            "within": lambda: ours(place, "read", request, size, direct, 0, "within")["rate_bytes_s"] / MIB,
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(rounds):
            order = list(ways)
            for way in order[turn % 4 :] + order[: turn % 4]:
                rates[way].append(ways[way]())
        (place / DATA).unlink()
        result = {"read": name, "turns": rounds} | {way: statistics.median(values) for way, values in rates.items()}
        result |= {f"{way}_interval": interval(values) for way, values in rates.items()}
        result |= {f"{way}_of_off": statistics.median(a / b for a, b in zip(rates[way], rates["off"])) for way in ("fio", "after", "within")}
        results.append(result)
        print(name, {key: value for key, value in result.items() if not key.endswith("interval")}, flush=True)
    return results


def own_cost(memory: pathlib.Path, program: str, rounds: int) -> dict:
    """Nanoseconds of a 4 KiB pwrite, bare and with all that the tool does around it."""
    size, bare, tool = 256 * MIB, [], []
    for turn in range(rounds):
        bare.append(float(subprocess.run([program, memory / "bare", str(size), "4096"], capture_output=True, text=True, check=True).stdout))
        (memory / DATA).unlink(missing_ok=True)
        row = ours(memory, "write", 4096, size, False, turn)
        tool.append(row["elapsed_s"] * 1e9 / row["requests"])
    differences = [b - a for a, b in zip(bare, tool)]
    result = {"bare_ns": statistics.median(bare), "terrace_bench_ns": statistics.median(tool), "cost_ns": statistics.median(differences), "cost_interval_ns": interval(differences)}
    print(f"4 KiB pwrite: bare {result['bare_ns']:.0f} ns, terrace bench {result['terrace_bench_ns']:.0f} ns, cost {result['cost_ns']:.0f} ns")
    return result


def starts(memory: pathlib.Path, count: int) -> dict:
    """Spread of the first requests of 4 workers over many starts."""
    rows = bench(memory, {"replications": count, "base": {"workers": 4, "operations": ["write"], "flush": "never", "workload": {"offset": {"data_size": "64K", "request_size": "64K"}}}})
    spreads = sorted(row["start_spread_s"] * 1e6 for row in rows)
    result = {"starts": len(spreads), "median_us": statistics.median(spreads), "p99_us": spreads[math.ceil(0.99 * len(spreads)) - 1], "max_us": spreads[-1]}
    print(f"starts of 4 workers: median {result['median_us']:.0f} us, p99 {result['p99_us']:.0f} us, largest {result['max_us']:.0f} us apart")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pwrite", required=True)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--directory", default="/var/tmp", help="on the storage to measure")
    parser.add_argument("--no-write", action="store_true", help="leave results/ as it is")
    parser.add_argument("--part", help="one pattern's number, `verify`, `cost` or `starts`: the rest of the results stays as it is")
    args = parser.parse_args()
    facts = provenance(f"benchmarks/instrument/run.sh --rounds {args.rounds} --starts {args.starts}")
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    places = {"disk": pathlib.Path(tempfile.mkdtemp(dir=args.directory)), "memory": pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))}
    try:
        file = RESULTS / "instrument.json"
        document = json.loads(file.read_text()) if args.part and file.exists() else {}
        # A part that is measured later has a provenance of its own.
        if args.part != "verify":
            document |= {"provenance": facts, "fio": version}
        kept = [row for row in document.get("side_by_side", []) if "turns" in row]
        patterns = [PATTERNS[int(args.part)]] if args.part and args.part.isdigit() else [] if args.part else PATTERNS
        found = {row["pattern"]: row for row in kept + side_by_side(places, args.rounds, patterns)}
        document["side_by_side"] = [found[pattern[0]] for pattern in PATTERNS if pattern[0] in found]
        if args.part in (None, "verify"):
            document["checking"] = checking(places, args.rounds)
            document["checking_load"] = os.getloadavg()[0]
            document["checking_provenance"] = facts
        if args.part in (None, "cost"):
            document["own_cost"] = own_cost(places["memory"], args.pwrite, args.rounds)
        if args.part in (None, "starts"):
            document["starts"] = starts(places["memory"], args.starts)
    finally:
        for place in places.values():
            shutil.rmtree(place)
    if args.no_write:
        return
    (RESULTS / "instrument.json").write_text(json.dumps(document, indent=2) + "\n")
    facts = document["provenance"]
    lines = ["# `terrace bench` beside fio", "", provenance_line(facts), "", f"Medians of {document['side_by_side'][0]['turns']} turns each, MiB/s, with 95% intervals of order statistics. {version}; each with its own default for what it writes (fio changes a part of its buffer for each request, `terrace bench` signs each block), and both read the same file.", "", "| pattern | fio | terrace bench | of fio's rate, in the same turn | intervals overlap within 5% |", "| --- | --- | --- | ---: | --- |"]
    for row in document["side_by_side"]:
        a, b = row["fio_interval"], row["terrace_bench_interval"]
        lines.append(f"| {row['pattern']} | {row['fio']:.0f} ({a[0]:.0f}–{a[1]:.0f}) | {row['terrace_bench']:.0f} ({b[0]:.0f}–{b[1]:.0f}) | {row['ratio']:.3f} | {'yes' if row['overlap_within_5_percent'] else 'no'} |")
    if "checking" in document:
        lines += ["", "## What checking costs a read", "", provenance_line(document["checking_provenance"]), "", f"Sequential reads, medians of {document['checking'][0]['turns']} turns, MiB/s, with 95% intervals; ratios to the read without a check, in the same turn. *After* is the default: all is read once more, outside of the measured time. *Within* checks each request as it comes. The machine's load was {document['checking_load']:.1f} at the end.", "", "| read | fio | no check | after | within | fio / no check | after / no check | within / no check |", "| --- | --- | --- | --- | --- | ---: | ---: | ---: |"]
        for row in document["checking"]:
            shown = [f"{row[way]:.0f} ({row[way + '_interval'][0]:.0f}–{row[way + '_interval'][1]:.0f})" for way in ("fio", "off", "after", "within")]
            lines.append(f"| {row['read']} | {' | '.join(shown)} | {row['fio_of_off']:.3f} | {row['after_of_off']:.3f} | {row['within_of_off']:.3f} |")
        lines += ["", "## Around a request, and at the start"]
    cost, start = document["own_cost"], document["starts"]
    lines += ["", f"A 4 KiB `pwrite` into memory takes {cost['bare_ns']:.0f} ns in a bare loop and {cost['terrace_bench_ns']:.0f} ns with signatures, counting and two looks at the clock: {cost['cost_ns']:.0f} ns more.", "", f"Four workers on {facts['cpus']} CPUs began within {start['median_us']:.0f} µs of each other (median of {start['starts']} starts), within {start['p99_us']:.0f} µs in 99 of 100.", ""]
    (RESULTS / "instrument.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
