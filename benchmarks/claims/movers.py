"""What flushing beside a program costs the program, by the number of mover threads: four processes write 1 GiB into memory, with computing
between, while nothing is flushed, and while 1, 2, 4 and 8 threads flush to the durable tier.

Writes results/claims-movers.json and results/claims-movers.md. Called by run.sh.
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
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

TERRACE = REPOSITORY / "target" / "release" / "terrace"
PROCESSES, FILES, MIB = 4, 8, 32
THREADS = [0, 1, 2, 4, 8]


def program() -> None:
    """A simulation's part: computes, writes a step, and so on. Prints the seconds that all parts took."""
    begun = time.monotonic()
    for number in range(PROCESSES):
        if os.fork() == 0:
            step = bytes([number]) * (MIB << 20)
            for file in range(FILES):
                sum(i * i for i in range(400_000))
                with open(f"step-{number}-{file}", "wb", buffering=0) as target:
                    target.write(step)
            os._exit(0)
    if any(os.wait()[1] for _ in range(PROCESSES)):
        sys.exit("a part failed")
    print(time.monotonic() - begun)


def seconds(place: pathlib.Path, memory: pathlib.Path, threads: int) -> float:
    root = place / "root"
    root.mkdir()
    config = place / "terrace.toml"
    config.write_text(
        f'root = "{root}"\nstate = "{memory}/state"\n[[tier]]\nname = "ram"\npath = "{memory}/tier"\ncapacity = "3GiB"\n'
        + f'[mover]\nthreads = {threads or 1}\nsettle = "10ms"\n'
        + ("" if threads else '[policy]\nflush = ["!**"]\n')
    )
    command = [TERRACE, "run", "--quiet", "--config", config, "--", sys.executable, pathlib.Path(__file__).resolve(), "--program"]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    subprocess.run(["rm", "-rf", root, *memory.glob("tier/*")], check=True)
    os.sync()
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", default="/var/tmp", help="where the durable tier lies")
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.program:
        return program()
    facts = provenance(f"benchmarks/claims/run.sh --rounds {args.rounds}")
    load = os.getloadavg()[0]
    times: dict[int, list[float]] = {threads: [] for threads in THREADS}
    with tempfile.TemporaryDirectory(dir=args.directory) as place, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        (pathlib.Path(memory) / "tier").mkdir()
        # The first round touches memory.
        for number in range(-1, args.rounds):
            for threads in THREADS:
                taken = seconds(pathlib.Path(place), pathlib.Path(memory), threads)
                if number >= 0:
                    times[threads].append(taken)
    alone = times[0]
    rows = [
        {"threads": threads, "seconds": statistics.median(taken), "ratio": statistics.median(a / b for a, b in zip(taken, alone))}
        for threads, taken in times.items()
    ]
    (RESULTS / "claims-movers.json").write_text(json.dumps({"provenance": facts, "load": load, "movers": rows}, indent=2) + "\n")
    lines = ["# Flushing beside a program", "", provenance_line(facts), "", f"{PROCESSES} processes compute and write {FILES} steps of {MIB} MiB each into memory, while so many mover threads flush them to a local disk; the program's own time, without the final flush. Medians of {args.rounds} rounds by turns; ratios are medians of the rounds' ratios. The machine's load was {load:.1f} before.", "", "| mover threads | program, s | to without a flush |", "| ---: | ---: | ---: |"]
    lines += [f"| {row['threads'] or 'nothing is flushed'} | {row['seconds']:.3f} | {row['ratio']:.2f} |" for row in rows]
    (RESULTS / "claims-movers.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
