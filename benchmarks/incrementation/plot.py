#!/usr/bin/env python3
"""Draws benchmarks/results/incrementation.png from incrementation.json: one panel an experiment, bounds as shaded spans, a line for the run by hand."""

from __future__ import annotations

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
WAYS = (
    ("alone", "durable tier alone", "#8a8f98"),
    ("memory", "Terrace, intermediates in tiers", "#1f77b4"),
    ("flush_all", "Terrace, everything flushed", "#e08a2e"),
)
TITLES = {
    "processes": "processes",
    "iterations": "iterations",
    "disks": "tiers too small for the data",
    "files": "number and size of files",
}


def main() -> None:
    measured = json.loads((RESULTS / "incrementation.json").read_text(encoding="utf-8"))
    panels = {name: [row for row in measured["results"] if row["experiment"] == name] for name in TITLES}
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for axis, (name, rows) in zip(axes.flat, panels.items()):
        width = 0.26
        for index, (way, _, colour) in enumerate(WAYS):
            for place, row in enumerate(rows):
                seconds = row[f"{way}_s"]
                if seconds is None:
                    continue
                x = place + (index - 1) * width
                axis.bar(x, seconds, width * 0.92, color=colour, zorder=2)
                lower, upper = row[f"{way}_lower_s"], row[f"{way}_upper_s"]
                axis.bar(x, upper - lower, width * 0.5, bottom=lower, color="none", edgecolor="black", hatch="////",
                         linewidth=0.6, alpha=0.45, zorder=3)  # fmt: skip
                axis.annotate(f"{seconds:.1f}", (x, max(seconds, upper)), ha="center", va="bottom", fontsize=7)
        for place, row in enumerate(rows):
            if row["by_hand_s"]:
                axis.plot([place - width / 2, place + width / 2], [row["by_hand_s"]] * 2, color="#c03030", linewidth=2, zorder=4)
        axis.set_title(TITLES[name], fontsize=11)
        axis.set_xticks(range(len(rows)), [row["point"].replace(", ", "\n") for row in rows], fontsize=8)
        axis.set_ylabel("seconds")
        axis.grid(axis="y", color="#dddddd", zorder=0)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour, label=label) for _, label, colour in WAYS]
    handles.append(Patch(facecolor="none", edgecolor="black", hatch="////", alpha=0.45, label="the model's bounds"))
    handles.append(Line2D([], [], color="#c03030", linewidth=2, label="run in memory and copied by hand"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("The incrementation application on a distributed file system: less is better")
    figure.savefig(RESULTS / "incrementation.png", dpi=130)


if __name__ == "__main__":
    main()
