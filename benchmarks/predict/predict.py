#!/usr/bin/env python3
"""Prediction against measurement: closed form and simulation beside each measured point of the incrementation experiments.

    benchmarks/results/incrementation.json ─┐
    benchmarks/predict/testbed.json ────────┴─▶ terrace predict ─▶ docs/reference/performance.md (between its markers), docs/images/predict.png,
                                                                   benchmarks/results/predict.json

The closed form gets what was measured as a whole: the durable tier's bandwidths with as many processes as the point has. The
simulation gets parts: one server's limits, processors, metadata latency, mover threads, and on which server each file lies;
what they do together is its own result. Neither sees a measured time of what it predicts. What the memory tier sustains comes from the
runs by hand in it, which have neither Terrace nor the durable tier's writes in their growth (`memory_sustained`).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30
MASK = 0xFFFFFFFF
WAYS = {"alone": "durable tier alone", "memory": "Terrace, final files flushed", "flush_all": "Terrace, everything flushed"}
BEGIN, END = "<!-- predict: begin -->", "<!-- predict: end -->"


def _mix(rounds: int, words: list[int], first: int, second: int) -> tuple[int, int]:
    """TEA as GlusterFS's gf_dm_hashfn uses it."""
    total, b0, b1 = 0, first, second
    for _ in range(rounds):
        total = (total + 0x9E3779B9) & MASK
        b0 = (b0 + ((((b1 << 4) + words[0]) & MASK) ^ ((b1 + total) & MASK) ^ (((b1 >> 5) + words[1]) & MASK))) & MASK
        b1 = (b1 + ((((b0 << 4) + words[2]) & MASK) ^ ((b0 + total) & MASK) ^ (((b0 >> 5) + words[3]) & MASK))) & MASK
    return (first + b0) & MASK, (second + b1) & MASK


def name_hash(name: str) -> int:
    """GlusterFS's hash of a file's name (libglusterfs, hashfn.c). It decides on which server the file lies."""
    data = name.encode()
    length = len(data)
    pad = length | length << 8
    pad = (pad | pad << 16) & MASK
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, length // 4 * 4, 4)]
    first, second = 0x9464A485, 0x542E1A94
    while len(words) >= 4 and length >= 16:
        first, second = _mix(6, words[:4], first, second)
        words, length = words[4:], length - 16
    rest = data[len(data) - len(data) % 4 :]
    tail = []
    for place in range(4):
        if place < len(words):
            tail.append(words[place])
        else:
            value = pad
            for byte in rest:
                value = (value << 8 | byte) & MASK
            rest = b""
            tail.append(value)
    first, second = _mix(10, tail, first, second)
    return first ^ second


def servers_of_blocks(blocks: int, servers: int) -> list[int]:
    """Ranges of the hash are equal and, in each directory, shifted by some number, which the simulation draws."""
    return [name_hash(f"block-{block:04d}.raw") * servers >> 32 for block in range(blocks)]


def memory_sustained(measured: dict, testbed: dict) -> float:
    """The part of the memory tier's probed bandwidth that a program sustains there.

    The probe writes the same 512 MiB of memory again and again. A program that keeps its files takes other pages with each, and is
    slower. How much says the growth of the runs by hand (the program in the memory tier, without Terrace) with their iterations:
    one iteration more writes the data once more into memory and reads it, and nothing else.
    """
    rows = [row for row in measured["results"] if row["experiment"] == "iterations" and row.get("by_hand_s")]
    count = [row["iterations"] for row in rows]
    if len(set(count)) < 2:
        return 1.0
    seconds_each = statistics.linear_regression(count, [row["by_hand_s"] for row in rows]).slope
    data_mib = rows[0]["blocks"] * rows[0]["block_mib"]
    write, read, _ = measured["bandwidths_mib_s"]["tmpfs"][str(rows[0]["processes"])]
    computing = testbed["increment_s_per_mib"] * data_mib / min(rows[0]["processes"], testbed["cores"])
    return min(1.0, (data_mib / write + data_mib / read) / (seconds_each - computing))


class Point:
    """One measured point, and what is asked about it. `sustained`: see `memory_sustained`."""

    def __init__(self, row: dict, rates: dict, testbed: dict, sustained: float = 1.0):
        self.row, self.testbed = row, testbed
        processes = str(row["processes"])
        self.pfs = {count: [rate * MIB for rate in three] for count, three in rates["pfs"].items()}
        self.memory = {count: [rate * MIB * sustained for rate in three] for count, three in rates["tmpfs"].items()}
        self.ssd = {count: [rate * MIB for rate in three] for count, three in rates["ssd0"].items()}
        self.processes = processes

    def workload(self, way: str) -> dict:
        row = self.row
        data = row["blocks"] * row["block_mib"] * MIB
        compute = self.testbed["increment_s_per_mib"] * row["blocks"] * row["block_mib"] * row["iterations"]
        return {
            "input": data,
            "intermediate": (row["iterations"] - 1) * data,
            "output": data,
            "file_size": row["block_mib"] * MIB,
            "nodes": 1,
            "processes": row["processes"],
            "iterations": row["iterations"],
            "compute": compute,
            "flush": {"alone": "none", "memory": "final", "flush_all": "all"}[way],
            "layout": {"names": servers_of_blocks(row["blocks"], self.testbed["servers"])},
        }

    def tiers(self, cost: dict | None) -> list[dict]:
        """The memory tier and the SSDs; `cost`: processor seconds a byte of memory, where processors are counted."""
        row, testbed = self.row, self.testbed
        write, read, _ = self.memory[self.processes]
        memory = {"name": "memory", "in_memory": True, "capacity_bytes": row["memory_mib"] * MIB, "read_bytes_s": read, "write_bytes_s": write}
        if cost:
            memory["processor"] = cost
        tiers = [memory]
        if row["ssds"]:
            tiers.append(
                {
                    "name": "ssd",
                    "devices": row["ssds"],
                    "capacity_bytes": row["ssds"] * testbed["ssd_capacity_mib"] * MIB,
                    "read_bytes_s": testbed["ssd_read_mib_s"] * MIB,
                    "write_bytes_s": testbed["ssd_write_mib_s"] * MIB,
                }
            )
        return tiers

    def closed_form_platform(self) -> dict:
        """Equations' machine: totals as measured with as many processes, shared out among the disks that they keep busy."""
        row, testbed = self.row, self.testbed
        write, read, _ = self.pfs[self.processes]
        busy = min(testbed["servers"], row["processes"])
        memory_write, memory_read, _ = self.memory[self.processes]
        return {
            "tiers": self.tiers(None),
            "durable": {"servers": testbed["servers"], "disks": testbed["servers"], "read_bytes_s": read / busy, "write_bytes_s": write / busy},
            "cache": {"bytes": testbed["page_cache_mib"] * MIB, "read_bytes_s": memory_read, "write_bytes_s": memory_write},
        }

    def simulated_platform(self) -> dict:
        testbed = self.testbed
        alone_write, alone_read, _ = self.memory["1"]
        per_gib = lambda costs: {f"{what}_s_per_byte": seconds / GIB for what, seconds in costs.items()}  # noqa: E731
        return {
            "cores_per_node": testbed["cores"],
            "tiers": self.tiers({"read_s_per_byte": 1 / alone_read, "write_s_per_byte": 1 / alone_write}),
            "durable": {
                "servers": testbed["servers"],
                "disks": testbed["servers"],
                "read_bytes_s": testbed["server_read_mib_s"] * MIB,
                "write_bytes_s": testbed["server_write_mib_s"] * MIB,
                "client_read_bytes_s": max(read for _, read, _ in self.pfs.values()),
                # One process's, as measured: the limits of servers and processors leave it more.
                "stream_read_bytes_s": self.pfs["1"][1],
                "latency_s": testbed["metadata_latency_s"],
                "operation_processor_s": testbed["metadata_processor_s"],
                **({"sync_bytes_s": testbed["server_sync_mib_s"] * MIB} if "server_sync_mib_s" in testbed else {}),
                "duplex": True,
                "processor": per_gib(testbed["client_processor_s_per_gib"]),
                "server_processor": per_gib(testbed["server_processor_s_per_gib"]),
                "servers_on_compute_nodes": True,
            },
            "cache": {
                "bytes": testbed["page_cache_mib"] * MIB,
                "read_bytes_s": max(again for _, _, again in self.pfs.values()),
                "write_bytes_s": max(write for write, _, _ in self.ssd.values()),
                "dirty_bytes": testbed["ssd_dirty_mib"] * MIB,
                "processor": {"read_s_per_byte": 1 / self.pfs["1"][2], "write_s_per_byte": 1 / self.ssd["1"][0]},
            },
            "mover": {"threads": testbed["mover_threads"], "start_s": testbed["mover_start_s"]},
        }


def ask(terrace: str, platform: dict, workload: dict, *flags: str) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        files = {"platform.json": platform, "workload.json": workload}
        for name, content in files.items():
            (pathlib.Path(directory) / name).write_text(json.dumps(content), encoding="utf-8")
        command = [terrace, "predict", "--json", "--platform", "platform.json", "--workload", "workload.json", *flags]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"predict: `{' '.join(command)}` failed: {done.stderr.strip()}")
        return json.loads(done.stdout)


def predict(terrace: str, measured: dict, testbed: dict, runs: int, others: int = 0) -> list[dict]:
    """`others`: threads of other programs that ran meanwhile, for a second simulation of a measurement on a busy machine."""
    found = []
    sustained = memory_sustained(measured, testbed)
    for row in measured["results"]:
        point = Point(row, measured["bandwidths_mib_s"], testbed, sustained)
        for way, title in WAYS.items():
            seconds = row.get(f"{way}_s")
            if seconds is None:
                continue
            workload = point.workload(way)
            closed = ask(terrace, point.closed_form_platform(), workload)["closed_form"]["durable_alone" if way == "alone" else "terrace"]
            answer = ask(terrace, point.simulated_platform(), workload, "--simulate", "--runs", str(runs))
            simulated = answer["simulation"]["durable_alone" if way == "alone" else "terrace"]
            loaded_s = None
            if others:
                busy = {**point.simulated_platform(), "other_threads": others}
                loaded = ask(terrace, busy, workload, "--simulate", "--runs", str(runs))["simulation"]
                loaded_s = loaded["durable_alone" if way == "alone" else "terrace"]["median_s"]
            found.append(
                {
                    "experiment": row["experiment"],
                    "point": row["point"],
                    "way": way,
                    "title": title,
                    "measured_s": seconds,
                    "measured_runs_s": row["runs_s"].get(way.replace("_", "-"), []),
                    "with_page_cache_s": closed["with_page_cache_s"],
                    "without_page_cache_s": closed["without_page_cache_s"],
                    "upper_error": closed["without_page_cache_s"] / seconds - 1,
                    "simulated_s": simulated["median_s"],
                    "simulated_least_s": simulated["least_s"],
                    "simulated_most_s": simulated["most_s"],
                    "simulated_error": simulated["median_s"] / seconds - 1,
                    "loaded_s": loaded_s,
                    "loaded_error": loaded_s / seconds - 1 if loaded_s else None,
                    "limited_by": simulated["limited_by"],
                }
            )
    return found


def spread_of(values: list[float]) -> str:
    sizes = [abs(value) for value in values]
    return f"{statistics.median(sizes):.0%} (largest {max(sizes):.0%})"


def table(rows: list[dict], measured: dict, runs: int, others: int) -> str:
    lines = [
        f"Measured {measured['date']} at commit `{measured['commit']}` with `{measured['command']}`, medians of {measured['repetitions']} runs;",
        f"simulated with {runs} seeds each. Seconds; errors are of the prediction against the measured median.",
        "",
    ]
    if measured.get("note"):
        lines += [f"**Note on the measurement:** {measured['note']}", ""]
    if measured.get("load_before"):
        loads = measured["load_before"]
        lines += [f"The machine's load before each point was {min(loads):.1f} to {max(loads):.1f} on {measured['cpus']} CPUs.", ""]
    if others:
        lines += [
            f"Other programs ran during this measurement, so there is a second simulation with {others} threads of others on the node, about the",
            "load that was recorded. On a quiet machine the first one is to be compared.",
            "",
        ]
    keys = {"upper_error": "closed form, upper bound", "simulated_error": "simulation"}
    if others:
        keys["loaded_error"] = f"simulation with {others} other threads"
    names = list(dict.fromkeys(row["experiment"] for row in rows))
    groups = [("experiment " + name, [row for row in rows if row["experiment"] == name]) for name in names]
    groups += [(title, [row for row in rows if row["way"] == way]) for way, title in WAYS.items()]
    groups.append(("**all**", rows))
    lines += ["| median error of | " + " | ".join(keys.values()) + " |", "| --- |" + " ---: |" * len(keys)]
    lines += [f"| {name} | " + " | ".join(spread_of([row[key] for row in of]) for key in keys) + " |" for name, of in groups]
    heads = ["experiment", "point", "way", "measured", "closed form", "error of its upper bound", "simulated (all seeds)", "error"]
    heads += [f"with {others} other threads", "error"] if others else []
    lines += ["", "| " + " | ".join(heads) + " | the simulation says it is limited by |"]
    lines.append("| --- | --- | --- |" + " ---: |" * (len(heads) - 3) + " --- |")
    for row in rows:
        loaded = f" {row['loaded_s']:.1f} | {row['loaded_error']:+.0%} |" if others else ""
        lines.append(
            f"| {row['experiment']} | {row['point']} | {row['title']} | {row['measured_s']:.1f} | {row['with_page_cache_s']:.1f}–{row['without_page_cache_s']:.1f} "
            f"| {row['upper_error']:+.0%} | {row['simulated_s']:.1f} ({row['simulated_least_s']:.1f}–{row['simulated_most_s']:.1f}) "
            f"| {row['simulated_error']:+.0%} |{loaded} {row['limited_by']} |"
        )
    return "\n".join(lines) + "\n"


def put_between_markers(file: pathlib.Path, text: str) -> None:
    page = file.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise SystemExit(f"predict: {file} has no `{BEGIN}` … `{END}`")
    before, after = page.split(BEGIN, 1)[0], page.split(END, 1)[1]
    file.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def draw(rows: list[dict], file: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(row["experiment"] for row in rows))
    colours = dict(zip(WAYS, ("#8a8f98", "#1f77b4", "#e08a2e")))
    figure, axes = plt.subplots(2, 2, figsize=(12, 8.4))
    width = 0.26
    for axis, name in zip(axes.flat, names):
        of = [row for row in rows if row["experiment"] == name]
        points = list(dict.fromkeys(row["point"] for row in of))
        for row in of:
            x = points.index(row["point"]) + (list(WAYS).index(row["way"]) - 1) * width
            axis.bar(x, row["measured_s"], width * 0.92, color=colours[row["way"]], zorder=2)
            axis.bar(x, row["without_page_cache_s"] - row["with_page_cache_s"], width * 0.5, bottom=row["with_page_cache_s"], color="none", edgecolor="black",
                     hatch="////", linewidth=0.6, alpha=0.45, zorder=3)  # fmt: skip
            spread = [[row["simulated_s"] - row["simulated_least_s"]], [row["simulated_most_s"] - row["simulated_s"]]]
            axis.errorbar(x, row["simulated_s"], yerr=spread, fmt="D", markersize=5, color="#c03030", capsize=3, zorder=4)
            if row["loaded_s"]:
                axis.plot(x, row["loaded_s"], "D", markersize=5, markerfacecolor="white", markeredgecolor="#c03030", zorder=5)
        axis.set_title(name, fontsize=11)
        axis.set_xticks(range(len(points)), [point.replace(", ", "\n") for point in points], fontsize=8)
        axis.set_ylabel("seconds")
        axis.grid(axis="y", color="#dddddd", zorder=0)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colours[way], label=f"measured: {title}") for way, title in WAYS.items()]
    handles.append(Patch(facecolor="none", edgecolor="black", hatch="////", alpha=0.45, label="closed form: bounds"))
    handles.append(Line2D([], [], color="#c03030", marker="D", linestyle="none", label="simulated: median and all seeds"))
    if any(row["loaded_s"] for row in rows):
        handles.append(
            Line2D([], [], color="#c03030", marker="D", markerfacecolor="white", linestyle="none", label="simulated with the load of others")
        )
    figure.tight_layout(rect=(0, 0.07, 1, 0.96))
    figure.legend(handles=handles, loc="lower center", ncol=3, frameon=False)
    figure.suptitle("Prediction against measurement: the incrementation application")
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terrace", required=True, help="the terrace binary")
    parser.add_argument("--measured", type=pathlib.Path, default=RESULTS / "incrementation.json")
    parser.add_argument("--runs", type=int, default=20, help="seeds of each simulated point")
    parser.add_argument("--other-threads", type=int, default=0, help="of a busy machine: also simulate with so many threads of others")
    parser.add_argument("--no-plot", action="store_true", help="leave the picture as it is (without matplotlib)")
    options = parser.parse_args()
    measured = json.loads(options.measured.read_text(encoding="utf-8"))
    testbed = json.loads((HERE / "testbed.json").read_text(encoding="utf-8"))
    rows = predict(options.terrace, measured, testbed, options.runs, options.other_threads)
    text = table(rows, measured, options.runs, options.other_threads)
    print(text)
    facts = provenance("benchmarks/predict/run.sh")
    document = {**facts, "measured": {key: measured[key] for key in ("date", "commit", "command")}, "results": rows}
    (RESULTS / "predict.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    put_between_markers(REPOSITORY / "docs/reference/performance.md", text)
    if not options.no_plot:
        draw(rows, REPOSITORY / "docs/images/predict.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
