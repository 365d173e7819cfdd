#!/usr/bin/env python3
"""The Sea paper's experiments with the incrementation application: the durable tier alone against Terrace.

For each point of each experiment, on a real distributed file system (GlusterFS behind rate-limited links, `pfs-testbed`):

  alone      the program as it is
  memory     under `terrace run`; intermediate files are removed at the end, the final ones flushed (those that spilled
             into the durable tier stay there)
  flush-all  under `terrace run` with no policy at all: every file is flushed
  by hand    what a user does without Terrace where the memory has room for all: intermediate and final files in the memory
             tier, the final ones copied out afterwards, the others deleted; it shows what this machine can do at best, with
             clients and servers on the same processors, which the model doesn't know

Every run starts with cold client caches and empty output directories; the ways take turns, and each number is a median.
A Terrace run's time is that of the whole `terrace run` command: start of the agent, program, final flush. After each run
every number in the files on the durable tier is checked.

Beside each point stand the model's bounds (crates/model, equations 1 to 11) from bandwidths measured just before, with the
same program. The model has no flush; its time at the durable tier's write bandwidth L_w is added for Terrace's total:

  alone       lower: eq. 4 (the page cache absorbs all but the input)  upper: eq. 1
  memory      lower: max(eq. 4, D_I/L_r + D_f/L_w)                     upper: eq. 5 + D_f/L_w
  flush-all   lower: max(eq. 4, D_I/L_r + (D_m + D_f)/L_w)             upper: eq. 5 + (D_m + D_f)/L_w
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

MIB = 1 << 20
OSTS = 4
SSD_MIB = 4096
MEMORY_MIB = 7168  # of the fast tier where an experiment doesn't vary it


@dataclasses.dataclass(frozen=True)
class Workload:
    """One application run: what `incrementation run` is told."""

    blocks: int = 8
    block_mib: int = 64
    iterations: int = 5
    processes: int = 2

    @property
    def written_mib(self) -> int:
        return self.blocks * self.block_mib * self.iterations


@dataclasses.dataclass(frozen=True)
class Point:
    """One column of an experiment's chart."""

    experiment: str
    label: str
    workload: Workload
    memory_mib: int = MEMORY_MIB
    ssds: int = 0
    flush_all: bool = False


BASE = Workload()
SPILL_MIB = 1024  # a third of what the base workload writes, after room for one file of each process

EXPERIMENTS = {
    "processes": [Point("processes", f"{p}", dataclasses.replace(BASE, processes=p), flush_all=True) for p in (1, 2, 4)],
    "iterations": [Point("iterations", f"{n}", dataclasses.replace(BASE, iterations=n), flush_all=True) for n in (1, 5, 8, 12)],
    "disks": [
        Point("disks", f"{ssds} SSD, memory {SPILL_MIB} MiB", BASE, memory_mib=SPILL_MIB, ssds=ssds, flush_all=ssds == 2)
        for ssds in (0, 1, 2)
    ]
    + [Point("disks", f"memory {MEMORY_MIB} MiB", BASE)],
    "files": [
        Point("files", "32 × 16 MiB", Workload(blocks=32, block_mib=16), flush_all=True),
        Point("files", "8 × 64 MiB", BASE),
        Point("files", "2 × 617 MiB", Workload(blocks=2, block_mib=617, iterations=3), flush_all=True),
    ],
}


class Testbed:
    """The distributed file system and its one compute node."""

    def __init__(self, program: str, directory: pathlib.Path):
        self.program, self.directory = program, directory
        self.environment = {**os.environ, "PFS_TESTBED_DIR": str(directory)}
        self.mounts = directory / "mnt"

    def control(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([self.program, *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise SystemExit(f"incrementation: `pfs-testbed {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done

    def up(self, warm_mib: int) -> None:
        sizes = {"--osts": OSTS, "--tmpfs": MEMORY_MIB + 1024, "--ssds": 2, "--ssd-size": SSD_MIB, "--warm": warm_mib}
        self.control("up", "--force", *(text for pair in sizes.items() for text in map(str, pair)))

    def node(self, *command: str) -> str:
        """Runs a command on the compute node; its standard output."""
        done = subprocess.run(
            [self.program, "exec", "0", "--", *command], env=self.environment, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"incrementation: `{' '.join(command)}` ended with status {done.returncode}")
        return done.stdout

    def cold(self) -> None:
        """Empty client caches. The agent of the last run leaves a moment after the run: wait for it."""
        for _ in range(100):
            done = self.control("cold", check=False)
            if done.returncode == 0:
                return
            time.sleep(0.2)
        raise SystemExit(f"incrementation: the file system stays in use: {done.stderr.strip()}")


class Experiment:
    """Runs points on a testbed and remembers what it measured."""

    def __init__(self, testbed: Testbed, incrementation: str, terrace: str, repetitions: int):
        self.testbed, self.incrementation, self.terrace, self.repetitions = testbed, incrementation, terrace, repetitions
        self.root = testbed.mounts / "pfs" / "study"
        self.inputs: set[tuple[int, int]] = set()
        self.alone_s: dict[Workload, list[float]] = {}

    def input_directory(self, workload: Workload) -> str:
        return f"{self.root}/input-{workload.blocks}x{workload.block_mib}"

    def prepare(self, workload: Workload) -> None:
        if (workload.blocks, workload.block_mib) in self.inputs:
            return
        for blocks, block_mib in self.inputs:  # one input at a time: the servers' disks are small
            self.testbed.node("rm", "-rf", f"{self.root}/input-{blocks}x{block_mib}")
        self.inputs = {(workload.blocks, workload.block_mib)}
        self.testbed.node("mkdir", "-p", str(self.root))
        self.testbed.node(
            self.incrementation, "make", self.input_directory(workload), str(workload.blocks), str(workload.block_mib)
        )

    def arguments(self, command: str, workload: Workload, last: str) -> list[str]:
        return [
            self.incrementation, command, self.input_directory(workload), f"{self.root}/work", f"{self.root}/final",
            str(workload.blocks), str(workload.block_mib), str(workload.iterations), last,
        ]  # fmt: skip

    def settle(self, touch_mib: int) -> None:
        """The state that every run starts from: no outputs, disks idle, cold clients, touched memory in the tier."""
        self.testbed.node("rm", "-rf", f"{self.root}/work", f"{self.root}/final")
        self.testbed.cold()
        subprocess.run(["sync"], check=True)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1\n", encoding="ascii")  # or the servers' caches fill the memory
        if touch_mib:
            touch = f"{self.testbed.mounts}/tmpfs/touch"
            self.testbed.node("dd", "if=/dev/zero", f"of={touch}", "bs=4M", f"count={touch_mib // 4 + 1}", "status=none")
            self.testbed.node("rm", touch)

    def timed(self, way: str, workload: Workload, command: list[str], all_fits: bool) -> tuple[float, float]:
        """(seconds of the whole command, seconds that the program says it took); outputs are verified.

        Intermediate files must be gone where the tiers had room for them; what spilled into the root stays there.
        """
        self.settle(0 if way == "alone" else min(workload.written_mib, MEMORY_MIB))
        begin = time.monotonic()
        output = self.testbed.node(*command)
        total_s = time.monotonic() - begin
        self.testbed.cold()  # what is checked comes from the servers
        self.testbed.node(*self.arguments("verify", workload, "all" if way == "flush-all" else "final"))
        if way == "memory" and all_fits:
            leftovers = self.testbed.node("find", f"{self.root}/work", "!", "-type", "d")
            if leftovers:
                raise SystemExit(f"incrementation: intermediate files were to be removed, but are there:\n{leftovers}")
        return total_s, float(output.split()[-1])

    def configuration(self, point: Point, way: str) -> tuple[str, str]:
        """Paths of the configuration and of the report of a run under Terrace."""
        mounts = self.testbed.mounts
        text = f'root = "{self.root}"\n[[tier]]\nname = "memory"\npath = "{mounts}/tmpfs"\ncapacity = "{point.memory_mib}MiB"\n'
        if point.ssds:
            paths = ", ".join(f'"{mounts}/ssd{i}"' for i in range(point.ssds))
            text += f'[[tier]]\nname = "ssd"\npath = [{paths}]\ncapacity = "{point.ssds * (SSD_MIB - 512)}MiB"\n'
        text += f"[mover]\nthreads = {OSTS}\n"  # as many files at a time as the durable tier has servers
        if way == "memory":
            text += '[policy]\nflush = ["final/**"]\nevict = ["work/**"]\n'
        path = self.testbed.directory / f"{way}.toml"
        path.write_text(text, encoding="utf-8")
        return str(path), str(self.testbed.directory / f"{way}-report.json")

    def under_terrace(self, point: Point, way: str) -> list[str]:
        configuration, report = self.configuration(point, way)
        run = self.arguments("run", point.workload, str(point.workload.processes))
        return [self.terrace, "run", "--quiet", "--config", configuration, "--report", report, "--", *run]

    def by_hand(self, workload: Workload) -> list[str]:
        """Run in the memory tier, then copy the final files out, as many at a time as there are servers."""
        memory = f"{self.testbed.mounts}/tmpfs/by-hand"
        run = [
            self.incrementation, "run", self.input_directory(workload), f"{memory}/work", f"{memory}/final",
            str(workload.blocks), str(workload.block_mib), str(workload.iterations), str(workload.processes),
        ]  # fmt: skip
        copy = f"dd if={memory}/final/@ of={self.root}/final/@ bs=4M conv=fsync status=none"
        script = f"set -e; mkdir -p {memory} {self.root}/work {self.root}/final; {shlex.join(run)}\n"
        script += f"ls {memory}/final | xargs -P{OSTS} -I@ {copy}; rm -r {memory}"
        return ["sh", "-c", script]

    def measure_point(self, point: Point, bounds: "Bounds") -> dict[str, object]:
        self.prepare(point.workload)
        ways = ["alone"] * (point.workload not in self.alone_s) + ["memory"] + ["flush-all"] * point.flush_all
        load_before = os.getloadavg()[0]
        totals: dict[str, list[float]] = {way: [] for way in ways}
        programs: dict[str, list[float]] = {way: [] for way in ways}
        if point.workload.written_mib <= point.memory_mib * 7 // 8:
            ways.append("by hand")
            totals["by hand"], programs["by hand"] = [], []
        for repetition in range(self.repetitions):
            turn = repetition % len(ways)
            for way in ways[turn:] + ways[:turn]:
                if way == "alone":
                    command = self.arguments("run", point.workload, str(point.workload.processes))
                elif way == "by hand":
                    command = self.by_hand(point.workload)
                else:
                    command = self.under_terrace(point, way)
                total_s, program_s = self.timed(way, point.workload, command, all_fits=point.memory_mib == MEMORY_MIB)
                totals[way].append(total_s)
                programs[way].append(program_s)
        self.alone_s.setdefault(point.workload, totals.get("alone", []))
        totals["alone"] = self.alone_s[point.workload]

        row: dict[str, object] = {
            "experiment": point.experiment,
            "point": point.label,
            **dataclasses.asdict(point.workload),
            "memory_mib": point.memory_mib,
            "ssds": point.ssds,
        }
        row["alone_s"] = statistics.median(totals["alone"])
        row["memory_s"] = statistics.median(totals["memory"])
        row["memory_program_s"] = statistics.median(programs["memory"])
        row["speedup"] = row["alone_s"] / row["memory_s"]
        row["flush_all_s"] = statistics.median(totals["flush-all"]) if point.flush_all else None
        row["flush_all_ratio"] = row["flush_all_s"] / row["alone_s"] if point.flush_all else None
        row["by_hand_s"] = statistics.median(totals["by hand"]) if "by hand" in totals else None
        row["over_by_hand"] = row["memory_s"] / row["by_hand_s"] if row["by_hand_s"] else None
        row["runs_s"] = totals
        row["load_before"] = load_before
        row.update(bounds.of(point))
        row["memory_over_bound"] = row["memory_s"] / row["memory_upper_s"]
        row["program_over_bound"] = row["memory_program_s"] / row["program_upper_s"]
        return row


class Bounds:
    """The model, with bandwidths measured on this testbed."""

    def __init__(self, testbed: Testbed, incrementation: str, model: str):
        self.model = model
        self.rates: dict[str, dict[int, tuple[float, float, float]]] = {}
        for tier in ("pfs", "ssd0", "tmpfs"):
            self.rates[tier] = {}
            for processes in (1, 2, 4):
                directory = f"{testbed.mounts}/{tier}"
                measure = (incrementation, "measure", directory, str(BASE.block_mib), "8", str(processes))
                runs = [tuple(map(float, testbed.node(*measure).split())) for _ in range(1 if tier == "ssd0" else 3)]
                write, read, again = (statistics.median(rates) for rates in zip(*runs))
                self.rates[tier][processes] = (write, read, again)
                print(f"  {tier:<6} {processes} processes: write {write:7.0f}, read {read:7.0f}, read again {again:7.0f} MiB/s", flush=True)

    def machine(self, point: Point) -> dict[str, object]:
        """The model's machine.

        All bandwidths were measured with as many processes as the application has. The durable tier's total is shared out
        among the disks that equations 2 and 3 take for busy, so that L_r and L_w come out as measured: two files on the same
        server, and the servers' use of this machine's processors, are in them.
        """
        processes = point.workload.processes
        memory_write, memory_read, _ = self.rates["tmpfs"][processes]
        durable_write, durable_read, _ = self.rates["pfs"][processes]
        busy = min(OSTS, processes)
        # The SSD is fed by the page cache, so the model gets what it sustains.
        return {
            "compute_nodes": 1,
            "processes_per_node": point.workload.processes,
            "storage_nodes": OSTS,
            "durable_disks": OSTS,
            "network_bytes_s": None,
            "durable_read_bytes_s": durable_read / busy * MIB,
            "durable_write_bytes_s": durable_write / busy * MIB,
            "local_disks": point.ssds,
            "local_disk_bytes": (SSD_MIB - 512) * MIB,
            "local_read_bytes_s": SSD_READ_MIB_S * MIB,
            "local_write_bytes_s": SSD_WRITE_MIB_S * MIB,
            "memory_bytes": point.memory_mib * MIB,
            "memory_read_bytes_s": memory_read * MIB,
            "memory_write_bytes_s": memory_write * MIB,
        }

    def of(self, point: Point) -> dict[str, float]:
        workload, block_bytes = point.workload, point.workload.block_mib * MIB
        data = workload.blocks * block_bytes
        sizes = {
            "input_bytes": data,
            "intermediate_bytes": (workload.iterations - 1) * data,
            "final_bytes": data,
            "file_bytes": block_bytes,
        }
        machine = self.machine(point)
        question = json.dumps({"machine": machine, "workload": sizes})
        answer = json.loads(subprocess.run([self.model], input=question, capture_output=True, text=True, check=True).stdout)
        durable_write, durable_read = (rate * MIB for rate in self.rates["pfs"][workload.processes][:2])
        input_s, final_s, all_s = data / durable_read, data / durable_write, workload.iterations * data / durable_write
        return {
            "alone_lower_s": answer["page_cache_s"],
            "alone_upper_s": answer["durable_alone_s"],
            "program_lower_s": answer["page_cache_s"],
            "program_upper_s": answer["tiers_s"],
            "memory_lower_s": max(answer["page_cache_s"], input_s + final_s),
            "memory_upper_s": answer["tiers_s"] + final_s,
            "flush_all_lower_s": max(answer["page_cache_s"], input_s + all_s),
            "flush_all_upper_s": answer["tiers_s"] + all_s,
        }


SSD_WRITE_MIB_S, SSD_READ_MIB_S = 426, 502  # the testbed's own limits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbed", required=True, help="the pfs-testbed program")
    parser.add_argument("--incrementation", required=True, help="the compiled incrementation.c")
    parser.add_argument("--terrace", required=True, help="the terrace binary")
    parser.add_argument("--model", required=True, help="the compiled example `bounds` of crates/model")
    parser.add_argument("--directory", default="/var/tmp/terrace-incrementation", help="where the testbed is built")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--warm-mib", type=int, default=14336, help="guest memory to fault in first (virtual machines)")
    parser.add_argument("--experiment", choices=list(EXPERIMENTS), action="append", help="only these; results are not written")
    parser.add_argument("--point", help="only points whose label has this in it; results are not written")
    parser.add_argument("--note", default="", help="a sentence for the results page: what was special about this run")
    parser.add_argument("--keep-up", action="store_true", help="leave the testbed up at the end, for a closer look")
    options = parser.parse_args()

    begin = time.monotonic()
    facts = provenance("benchmarks/incrementation/run.sh")
    testbed = Testbed(options.testbed, pathlib.Path(options.directory))
    testbed.up(options.warm_mib)
    try:
        print("bandwidths:", flush=True)
        bounds = Bounds(testbed, options.incrementation, options.model)
        experiment = Experiment(testbed, options.incrementation, options.terrace, options.repetitions)
        rows = []
        for name in options.experiment or EXPERIMENTS:
            for point in EXPERIMENTS[name]:
                if options.point and options.point not in point.label:
                    continue
                rows.append(experiment.measure_point(point, bounds))
                print_row(rows[-1], first=len(rows) == 1)
    finally:
        if not options.keep_up:
            testbed.control("down", check=False)
    # What else the machine did: on two processors, a load of another 2 doubles a run that computes.
    facts["load_before"] = [row["load_before"] for row in rows]
    facts["minutes"] = round((time.monotonic() - begin) / 60, 1)
    facts["repetitions"] = options.repetitions
    facts["note"] = options.note
    if not options.experiment and not options.point:
        write_results(facts, bounds, rows)
    return 0


COLUMNS = ("experiment", "point", "alone s", "bounds", "memory s", "bounds", "faster", "over bound", "by hand s", "over by hand", "flush-all s", "vs alone")


def cells(row: dict[str, object]) -> tuple[str, ...]:
    return (
        str(row["experiment"]),
        str(row["point"]),
        f"{row['alone_s']:.1f}",
        f"{row['alone_lower_s']:.1f}–{row['alone_upper_s']:.1f}",
        f"{row['memory_s']:.1f}",
        f"{row['memory_lower_s']:.1f}–{row['memory_upper_s']:.1f}",
        f"{row['speedup']:.1f}×",
        f"{row['memory_over_bound']:.2f}",
        f"{row['by_hand_s']:.1f}" if row["by_hand_s"] else "–",
        f"{row['over_by_hand']:.2f}" if row["over_by_hand"] else "–",
        f"{row['flush_all_s']:.1f}" if row["flush_all_s"] else "–",
        f"{row['flush_all_ratio']:.2f}" if row["flush_all_ratio"] else "–",
    )


def print_row(row: dict[str, object], first: bool) -> None:
    layout = "{:<11} {:<24} {:>8} {:>11} {:>9} {:>11} {:>7} {:>11} {:>10} {:>13} {:>12} {:>9}"
    if first:
        print(layout.format(*COLUMNS))
    print(layout.format(*cells(row)), flush=True)


def write_results(facts: dict[str, object], bounds: Bounds, rows: list[dict[str, object]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    everything = {**facts, "bandwidths_mib_s": bounds.rates, "results": rows}
    (RESULTS / "incrementation.json").write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    with open(RESULTS / "incrementation.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [key for key in rows[0] if key != "runs_s"], extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()} for row in rows)
    loads = ", ".join(f"{row['load_before']:.1f}" for row in rows)
    lines = [
        "# Incrementation: the durable tier alone and under Terrace",
        "",
        provenance_line(facts),
        f"Medians of {facts['repetitions']} runs; the whole took {facts['minutes']} minutes. The recipe, and what the ways and the",
        "bounds are, is in [`benchmarks/incrementation`](../incrementation/). All numbers: [CSV](incrementation.csv),",
        "[JSON](incrementation.json). Times are seconds of the whole command, Terrace's with its final flush. *Over bound* is",
        "the in-memory time over the model's upper bound; *by hand* is a run in the memory tier and a copy of the final files by hand; *vs alone* is the flush-all time over the durable tier's alone. The",
        f"machine's load average before each point was {loads} (the benchmark itself makes about 2).",
        *(["", f"**Note:** {facts['note']}"] if facts["note"] else []),
        "",
        "![times and bounds](incrementation.png)",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "| --- | --- |" + " ---: |" * (len(COLUMNS) - 2),
    ]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    lines += ["", "Measured bandwidths, MiB/s:", "", "| tier | processes | write | read | read again |", "| --- | ---: | ---: | ---: | ---: |"]
    for tier, by_processes in bounds.rates.items():
        lines += [f"| {tier} | {p} | {w:.0f} | {r:.0f} | {a:.0f} |" for p, (w, r, a) in by_processes.items()]
    (RESULTS / "incrementation.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"written: {RESULTS}/incrementation.json, .csv and .md")


if __name__ == "__main__":
    sys.exit(main())
