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

METADATA = {"create", "stat", "list", "unlink"}
INK, ACCENT = "#24292f", "#1f6feb"


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


def plot_rates(rows: pd.DataFrame, factors: list[str], path: pathlib.Path) -> str:
    """A panel for each operation: a box for each run, every measurement as a point."""
    operations = list(dict.fromkeys(rows["operation"]))
    runs = sorted(rows["run"].unique())
    figure, axes = plt.subplots(len(operations), 1, figsize=(max(5.0, 0.75 * len(runs) + 2), 3.2 * len(operations)), squeeze=False)
    for axis, operation in zip(axes[:, 0], operations):
        part = rows[rows["operation"] == operation]
        unit = part["unit"].iloc[0]
        samples = [part[part["run"] == run]["rate"].to_numpy() / scale_of(unit) for run in runs]
        axis.boxplot(samples, widths=0.55, showfliers=False, medianprops={"color": ACCENT, "linewidth": 1.6})
        jitter = np.random.default_rng(0)
        for index, sample in enumerate(samples):
            axis.plot(index + 1 + jitter.uniform(-0.14, 0.14, len(sample)), sample, ".", color=INK, markersize=3, alpha=0.6)
        labels = [label_of(rows[rows["run"] == run].iloc[0], factors) for run in runs]
        axis.set_xticks(range(1, len(runs) + 1), labels, rotation=0 if len(runs) < 8 else 60, ha="center" if len(runs) < 8 else "right")
        axis.set_ylim(bottom=0)
        tidy(axis, operation, unit)
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
        axis.legend(fontsize=7, frameon=False)
        tidy(axis, operation, unit)
    figure.tight_layout()
    return picture(figure, path)


def plot_latency(rows: pd.DataFrame, factors: list[str], path: pathlib.Path) -> str:
    """Percentiles of request latency (median over replications), a line for each run."""
    percentiles = [("50", "latency_median_ns"), ("90", "latency_p90_ns"), ("99", "latency_p99_ns"), ("99.9", "latency_p999_ns"), ("max", "latency_max_ns")]
    operations = list(dict.fromkeys(rows["operation"]))
    figure, axes = plt.subplots(1, len(operations), figsize=(4.6 * len(operations), 3.4), squeeze=False)
    for axis, operation in zip(axes[0], operations):
        part = rows[rows["operation"] == operation]
        for _, line in part.groupby("run"):
            values = [line[column].median() / 1e3 for _, column in percentiles]
            axis.plot(range(len(values)), values, marker="o", markersize=3, linewidth=1.1, label=label_of(line.iloc[0], factors).replace("\n", ", "))
        axis.set_xticks(range(len(percentiles)), [name for name, _ in percentiles])
        axis.set_xlabel("percentile", fontsize=9)
        axis.set_yscale("log")
        if part["run"].nunique() <= 12:
            axis.legend(fontsize=6, frameon=False)
        tidy(axis, operation, "microseconds")
    figure.tight_layout()
    return picture(figure, path)


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
th { font-weight: 600; } td { font-variant-numeric: tabular-nums; } img { max-width: 100%; } p.note { color: #57606a; }
"""


def page(directory: pathlib.Path) -> None:
    rows = read_rows(directory / "rows.jsonl")
    if rows.empty:
        sys.exit("report: no operation ended as it should: there is nothing to plot")
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    factors = factors_of(rows)
    name = str(rows["experiment"].iloc[0])

    parts = [f"<h1>{html.escape(name)}</h1>", f"<p>{len(rows)} operations of {rows['run'].nunique()} runs in {rows['replication'].nunique()} replications. Plan {html.escape(str(manifest.get('plan_hash')))}.</p>"]
    lines = [[s["run"], s["label"], s["operation"], s["count"], s["median_text"], s["interval_text"], s["harmonic_mean_text"]] for s in summary["runs"]]
    parts += ["<h2>Rates</h2>", table(["run", "factors", "operation", "n", "median", "95% interval", "harmonic mean"], lines)]
    parts.append('<p class="note">Intervals of the median are of order statistics, or of the bootstrap where marked with *. Rates are all bytes of all workers over the time from the first request to the last byte.</p>')
    parts.append(f'<img alt="rates" src="{plot_rates(rows, factors, directory / "rates.png")}">')
    if rows["workers"].nunique() > 1:
        parts += ["<h2>Scaling</h2>", f'<img alt="scaling" src="{plot_scaling(rows, factors, directory / "scaling.png")}">']
    parts += ["<h2>Latency</h2>", f'<img alt="latency" src="{plot_latency(rows, factors, directory / "latency.png")}">']

    found = {operation: effects(part) for operation, part in rows.groupby("operation")}
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
