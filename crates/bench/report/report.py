"""Effects tables and plots of an experiment's rows. Called by `terrace bench report`; needs requirements.txt beside it.

    report.py page DIRECTORY      rows.jsonl, summary.json -> effects.json, *.png, report.html
    report.py effects FILE...     rows.jsonl -> one JSON line for each experiment in them

An effect is tested on the logarithm of the rate (factors multiply rates, and rates are skewed to the right), with the
replication as a block: analysis of variance, type II, by statsmodels.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
import pathlib
import sys
import warnings

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import statsmodels.formula.api as smf  # noqa: E402
from statsmodels.stats.anova import anova_lm  # noqa: E402

METADATA = {"create", "stat", "list", "read_files", "unlink", "find"}
INK = "#24292f"
PALETTE = ["#1f6feb", "#d1590f", "#1a7f37", "#8250df", "#bf3989", "#57606a", "#9a6700", "#0a7b83"]
# Beyond these a picture is too wide or its legend too long to be read; the table has everything.
COLUMNS_MAX, LABELS_MAX, LINES_MAX, WIDTH_MAX = 6, 40, 16, 26.0


def read_rows(path: pathlib.Path) -> pd.DataFrame:
    """One row an operation that ended as it should; factors as columns `factor.NAME`, `rate` as the measure."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line of an interrupted experiment
        for factor, level in record.pop("factors").items():
            record["factor." + factor] = level
        if record["status"] == "ok" and record["elapsed_s"] > 0:
            counts = record["bytes"] == 0 or record["operation"] in METADATA
            record["rate"] = record["requests_s"] if counts else record["rate_bytes_s"]
            record["unit"] = "operations/s" if counts else "MiB/s"
            records.append(record)
    return pd.DataFrame(records)


def factors_of(rows: pd.DataFrame) -> list[str]:
    """Factors with more than one level, those with fewest levels first."""
    columns = [column for column in rows.columns if column.startswith("factor.")]
    varying = [column for column in columns if rows[column].nunique() > 1]
    return sorted(varying, key=lambda column: (rows[column].nunique(), column))


def effects(rows: pd.DataFrame) -> dict:
    """ANOVA table of one operation: main effects, interactions of two factors where the data has them all, blocks."""
    factors = factors_of(rows)
    if not factors:
        return {"terms": [], "note": "no factor has two levels"}
    data = pd.DataFrame({f"f{index}": rows[factor].astype(str) for index, factor in enumerate(factors)})
    data["y"] = np.log(rows["rate"].to_numpy(dtype=float))
    data["block"] = rows["replication"].astype(str).to_numpy()
    names = {f"C(f{index})": factor.removeprefix("factor.") for index, factor in enumerate(factors)}
    block = " + C(block)" if data["block"].nunique() > 1 else ""
    main = " + ".join(names)
    pairs = [f"{a}:{b}" for i, a in enumerate(names) for b in list(names)[i + 1 :]]
    # Excluded combinations leave holes; an interaction is asked for only where every cell has data.
    full = [pair for pair in pairs if _crossed(data, pair)]
    note = "" if full == pairs else "interactions with empty cells are left out"
    for terms in (full, []):
        formula = "y ~ " + " + ".join([main, *terms]) + block
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = smf.ols(formula, data).fit()
                if fit.df_resid < 1:
                    continue
                table = anova_lm(fit, typ=2)
        except (ValueError, np.linalg.LinAlgError):
            continue
        return {"terms": _terms(table, names, data), "note": note if terms == full else "interactions could not be estimated"}
    return {"terms": [], "note": "too few rows for an analysis of variance: replicate"}


def _crossed(data: pd.DataFrame, pair: str) -> bool:
    one, two = (name[2:-1] for name in pair.split(":"))
    return len(data.groupby([one, two])) == data[one].nunique() * data[two].nunique()


def _terms(table: pd.DataFrame, names: dict[str, str], data: pd.DataFrame) -> list[dict]:
    total = table["sum_sq"].sum()
    terms = []
    for term, row in table.iterrows():
        if term == "Residual":
            label = "residual"
        elif term == "C(block)":
            label = "replication (block)"
        else:
            label = " x ".join(names[part] for part in term.split(":"))
        entry = {
            "term": label,
            "df": float(row["df"]),
            "share_of_variance": float(row["sum_sq"] / total) if total > 0 else 0.0,
            "f": None if math.isnan(row["F"]) else float(row["F"]),
            "p": None if math.isnan(row["PR(>F)"]) else float(row["PR(>F)"]),
        }
        if term in names:
            means = data.groupby(term[2:-1])["y"].mean()
            entry["largest_ratio"] = float(math.exp(means.max() - means.min()))
            entry["best"] = str(means.idxmax())
        terms.append(entry)
    return terms


def label_of(row: pd.Series, factors: list[str]) -> str:
    return "\n".join(str(row[factor]) for factor in factors) or "all"


def picture(figure: plt.Figure, path: pathlib.Path) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    plt.close(figure)
    path.write_bytes(buffer.getvalue())
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def scale_of(unit: str) -> float:
    return 2.0**20 if unit == "MiB/s" else 1.0


def tidy(axis: plt.Axes, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=10, color=INK, loc="left")
    axis.set_ylabel(unit, fontsize=9)
    axis.grid(axis="y", color="#d0d7de", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def box(axis: plt.Axes, at: float, width: float, sample: np.ndarray, interval: tuple[float, float] | None, colour: str) -> None:
    """One run's rates: quartiles, every measurement as a point, and beside them the median's interval."""
    axis.boxplot([sample], positions=[at], widths=width, showfliers=False, patch_artist=True, boxprops={"facecolor": colour, "alpha": 0.25, "edgecolor": colour}, medianprops={"color": colour, "linewidth": 1.8}, whiskerprops={"color": colour}, capprops={"color": colour})
    jitter = np.random.default_rng(0).uniform(-0.22, 0.22, len(sample)) * width
    axis.plot(at + jitter, sample, ".", color=INK, markersize=3, alpha=0.55)
    if interval:
        middle = float(np.median(sample))
        bars = [[max(0.0, middle - interval[0])], [max(0.0, interval[1] - middle)]]
        axis.errorbar([at + 0.62 * width], [middle], yerr=bars, color=INK, capsize=2.5, linewidth=1.3)


def grid_of(rows: pd.DataFrame, factors: list[str]) -> tuple[list[str], str | None, str | None]:
    """Factors for the columns of panels, for the colours in a panel, and for its axis (the one with most levels)."""
    if not factors:
        return [], None, None
    axis, rest = factors[-1], factors[:-1]
    colour = rest[-1] if rest else None
    columns = rest[:-1]
    if columns and rows.groupby(columns).ngroups > COLUMNS_MAX:
        return [], None, None
    return columns, colour, axis


def levels_of(rows: pd.DataFrame, factor: str | None) -> list[str]:
    """In the order of the runs, which is that of the experiment; numbers by size."""
    if factor is None:
        return [""]
    found = list(dict.fromkeys(rows.sort_values("run")[factor].dropna()))
    try:
        return sorted(found, key=float)
    except ValueError:
        return found


def plain(factor: str) -> str:
    return factor.removeprefix("factor.").rsplit(".", 1)[-1]


def plot_rates(rows: pd.DataFrame, factors: list[str], intervals: dict, path: pathlib.Path) -> str:
    """A grid of box plots: a row of panels for each operation, columns, colours and places by the factors."""
    operations = list(dict.fromkeys(rows["operation"]))
    columns, colour, axis_factor = grid_of(rows, factors)
    if axis_factor is None:
        return plot_runs(rows, factors, intervals, path)
    panels = [level if isinstance(level, tuple) else (level,) for level, _ in rows.groupby(columns)] if columns else [()]
    places, colours = levels_of(rows, axis_factor), levels_of(rows, colour)
    width = 0.8 / len(colours)
    size = (min(WIDTH_MAX, len(panels) * max(2.6, 0.55 * len(places) * len(colours) + 1.2) + 1.6), 3.0 * len(operations))
    figure, axes = plt.subplots(len(operations), len(panels), figsize=size, squeeze=False, sharex=True, sharey="row")
    for line, operation in enumerate(operations):
        for column, panel in enumerate(panels):
            axis = axes[line, column]
            part = rows[rows["operation"] == operation]
            for factor, level in zip(columns, panel):
                part = part[part[factor] == level]
            unit = rows[rows["operation"] == operation]["unit"].iloc[0]
            for run, sample in part.groupby("run"):
                first = sample.iloc[0]
                hue = colours.index(first[colour]) if colour else 0
                at = places.index(first[axis_factor]) + 1 + (hue - (len(colours) - 1) / 2) * width
                box(axis, at, 0.62 * width, sample["rate"].to_numpy() / scale_of(unit), intervals.get((run, operation)), PALETTE[hue % len(PALETTE)])
            axis.set_xticks(range(1, len(places) + 1), places, rotation=0 if sum(map(len, map(str, places))) < 40 else 45)
            axis.set_xlim(0.4, len(places) + 0.6)
            where = ", ".join(f"{plain(factor)} {level}" for factor, level in zip(columns, panel))
            tidy(axis, f"{operation}: {where}" if where else operation, unit if column == 0 else "")
            if line == len(operations) - 1:
                axis.set_xlabel(plain(axis_factor), fontsize=9)
    # When all panels are drawn: a limit fixes the axis that a line of panels shares.
    for axis in axes[:, 0]:
        axis.set_ylim(bottom=0)
    if colour:
        keys = [plt.Rectangle((0, 0), 1, 1, color=PALETTE[index % len(PALETTE)], alpha=0.5) for index in range(len(colours))]
        figure.legend(keys, colours, title=plain(colour), fontsize=8, title_fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return picture(figure, path)


def plot_runs(rows: pd.DataFrame, factors: list[str], intervals: dict, path: pathlib.Path) -> str:
    """Where the factors make no grid: a panel for each operation, a box for each run."""
    operations = list(dict.fromkeys(rows["operation"]))
    runs = sorted(rows["run"].unique())
    size = (min(WIDTH_MAX, max(5.0, 0.75 * len(runs) + 2)), 3.2 * len(operations))
    figure, axes = plt.subplots(len(operations), 1, figsize=size, squeeze=False)
    for axis, operation in zip(axes[:, 0], operations):
        part = rows[rows["operation"] == operation]
        unit = part["unit"].iloc[0]
        for index, run in enumerate(runs):
            sample = part[part["run"] == run]["rate"].to_numpy() / scale_of(unit)
            if len(sample):
                box(axis, index + 1, 0.5, sample, intervals.get((run, operation)), PALETTE[0])
        labels = [label_of(rows[rows["run"] == run].iloc[0], factors) for run in runs] if len(runs) <= LABELS_MAX else runs
        few = len(runs) < 8
        axis.set_xticks(range(1, len(runs) + 1), labels, rotation=0 if few else 60, ha="center" if few else "right")
        axis.set_ylim(bottom=0)
        tidy(axis, operation, unit)
        if len(runs) > LABELS_MAX:
            axis.set_xlabel("run (see the table)", fontsize=9)
            axis.tick_params(axis="x", labelsize=5)
    figure.tight_layout()
    return picture(figure, path)


def plot_scaling(rows: pd.DataFrame, factors: list[str], path: pathlib.Path) -> str:
    """Median rate over the number of workers, a line for each combination of the other factors; bars are quartiles."""
    others = [factor for factor in factors if rows.groupby(factor)["workers"].nunique().max() > 1]
    operations = list(dict.fromkeys(rows["operation"]))
    figure, axes = plt.subplots(1, len(operations), figsize=(4.6 * len(operations), 3.4), squeeze=False)
    for axis, operation in zip(axes[0], operations):
        part = rows[rows["operation"] == operation]
        unit = part["unit"].iloc[0]
        for level, line in part.groupby(others) if others else [("all", part)]:
            rates = line.groupby("workers")["rate"].quantile([0.25, 0.5, 0.75]).unstack() / scale_of(unit)
            bars = np.vstack([rates[0.5] - rates[0.25], rates[0.75] - rates[0.5]])
            name = ", ".join(map(str, level)) if isinstance(level, tuple) else str(level)
            axis.errorbar(rates.index, rates[0.5], yerr=bars, marker="o", markersize=4, capsize=3, linewidth=1.2, label=name)
        axis.set_xticks(sorted(part["workers"].unique()))
        axis.set_xlabel("workers", fontsize=9)
        axis.set_ylim(bottom=0)
        tidy(axis, operation, unit)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    if 1 < len(labels) <= LINES_MAX:
        figure.legend(lines, labels, title=", ".join(map(plain, others)), fontsize=7, title_fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return picture(figure, path)


def plot_latency(rows: pd.DataFrame, factors: list[str], path: pathlib.Path) -> str:
    """Percentiles of request latency (median over replications), a line for each run; colours by one factor where runs are many."""
    percentiles = [("50", "latency_median_ns"), ("90", "latency_p90_ns"), ("99", "latency_p99_ns"), ("99.9", "latency_p999_ns"), ("max", "latency_max_ns")]
    operations = list(dict.fromkeys(rows["operation"]))
    many = rows["run"].nunique() > LINES_MAX
    shown = factors[:1] if many else factors
    keys = list(dict.fromkeys(label_of(row, shown).replace("\n", ", ") for _, row in rows.drop_duplicates("run").sort_values("run").iterrows()))
    figure, axes = plt.subplots(1, len(operations), figsize=(4.6 * len(operations), 3.4), squeeze=False, sharey=True)
    lines = {}
    for axis, operation in zip(axes[0], operations):
        part = rows[rows["operation"] == operation]
        for _, line in part.groupby("run"):
            values = [line[column].median() / 1e3 for _, column in percentiles]
            key = label_of(line.iloc[0], shown).replace("\n", ", ")
            place = keys.index(key)
            style = ["-", "--", ":"][place // len(PALETTE) % 3]
            (lines[key],) = axis.plot(range(len(values)), values, style, marker="o", markersize=3, linewidth=1.1, color=PALETTE[place % len(PALETTE)])
        axis.set_xticks(range(len(percentiles)), [name for name, _ in percentiles])
        axis.set_xlabel("percentile", fontsize=9)
        axis.set_yscale("log")
        tidy(axis, operation, "microseconds" if axis is axes[0, 0] else "")
    if shown and 1 < len(keys) <= 3 * len(PALETTE):
        figure.legend([lines[key] for key in keys], keys, title=", ".join(map(plain, shown)), fontsize=7, title_fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return picture(figure, path)


def interval_of(run: dict) -> tuple[float, float] | None:
    interval = run["rate"]["interval"]
    scale = scale_of("MiB/s" if run["unit"] == "bytes/s" else run["unit"])
    return None if interval["method"] == "none" else (interval["low"] / scale, interval["high"] / scale)


def failed_rows(path: pathlib.Path) -> list[dict]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [row for row in rows if row["status"] != "ok"]


def table(header: list[str], lines: list[list[object]]) -> str:
    head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #24292f; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de; }
table { border-collapse: collapse; font-size: 13px; } th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid #eaeef2; }
th { font-weight: 600; } td { font-variant-numeric: tabular-nums; } img { max-width: 100%; height: auto; } p.failed { color: #a40e26; font-weight: 600; } p.note { color: #57606a; }
"""


def page(directory: pathlib.Path) -> None:
    rows = read_rows(directory / "rows.jsonl")
    if rows.empty:
        sys.exit("report: no operation ended as it should: there is nothing to plot")
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    factors = factors_of(rows)
    name = str(rows["experiment"].iloc[0])

    intervals = {(run["run"], run["operation"]): interval_of(run) for run in summary["runs"]}
    failed = failed_rows(directory / "rows.jsonl")

    parts = [f"<h1>{html.escape(name)}</h1>", f"<p>{len(rows)} operations of {rows['run'].nunique()} runs in {rows['replication'].nunique()} replications. Plan {html.escape(str(manifest.get('plan_hash')))}.</p>"]
    if failed:
        parts.append(f'<p class="failed">{len(failed)} operations did not end as they should, and are in no number below.</p>')
        parts.append(table(["run", "operation", "replication", "status", "reason"], [[f["run"], f["operation"], f["replication"], f["status"], f["error"]] for f in failed[:20]]))
    lines = [[s["run"], s["label"], s["operation"], s["count"], s["median_text"], s["interval_text"], s["harmonic_mean_text"]] for s in summary["runs"]]
    parts += ["<h2>Rates</h2>", table(["run", "factors", "operation", "n", "median", "95% interval", "harmonic mean"], lines)]
    parts.append('<p class="note">Intervals of the median are of order statistics, or of the bootstrap where marked with *. Rates are all bytes of all workers over the time from the first request to the last byte. In the picture each measurement is a point; the bar beside a box is the interval.</p>')
    parts.append(f'<img alt="rates" src="{plot_rates(rows, factors, intervals, directory / "rates.png")}">')
    if rows["workers"].nunique() > 1:
        parts += ["<h2>Scaling</h2>", f'<img alt="scaling" src="{plot_scaling(rows, factors, directory / "scaling.png")}">']
    parts += ["<h2>Latency</h2>", f'<img alt="latency" src="{plot_latency(rows, factors, directory / "latency.png")}">']

    found = {operation: effects(part) for operation, part in rows.groupby("operation", sort=False)}
    (directory / "effects.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    parts.append("<h2>Effects and interactions</h2>")
    for operation, result in found.items():
        parts.append(f"<h3>{html.escape(str(operation))}</h3>")
        lines = [[t["term"], number(t["df"]), f"{100 * t['share_of_variance']:.1f}%", number(t["f"]), number(t["p"]), number(t.get("largest_ratio")), t.get("best", "")] for t in result["terms"]]
        if lines:
            parts.append(table(["term", "df", "share of variance", "F", "p", "largest ratio", "best level"], lines))
        if result["note"]:
            parts.append(f'<p class="note">{html.escape(result["note"])}</p>')
    parts.append('<p class="note">Analysis of variance (type II) of the logarithm of the rate, replications as blocks.</p>')
    facts = [[key, json.dumps(value) if isinstance(value, (dict, list)) else value] for key, value in manifest.items()]
    parts += ["<h2>Environment</h2>", table(["", ""], facts)]
    document = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(name)}</title><style>{STYLE}</style></head><body>{"".join(parts)}</body></html>'
    (directory / "report.html").write_text(document, encoding="utf-8")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["page", directory]:
            page(pathlib.Path(directory))
        case ["effects", *files]:
            for file in files:
                for (experiment, operation), rows in read_rows(pathlib.Path(file)).groupby(["experiment", "operation"]):
                    print(json.dumps({"experiment": experiment, "operation": operation, **effects(rows)}))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
