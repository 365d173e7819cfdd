"""Queries on a velocity grid, by five engines; medians in ms, and each answer compared with NumPy's."""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

arguments = argparse.ArgumentParser()
arguments.add_argument("directory", type=pathlib.Path, help="in memory, for the other engines' files")
arguments.add_argument("--size", choices=["8MiB", "128MiB", "385MiB", "4GiB"], default="385MiB", help="of each field")
arguments.add_argument("--quick", action="store_true", help="8 MiB, and no results page")
arguments.add_argument("--terrace-only", action="store_true", help="NumPy and Terrace alone, and no results page")
arguments.add_argument("--repeat", type=int, default=5)
asked = arguments.parse_args()

SHAPES = {"8MiB": (41, 160, 160), "128MiB": (64, 512, 512), "385MiB": (201, 501, 501), "4GiB": (512, 1024, 1024)}
SIZE = "8MiB" if asked.quick else asked.size
X, Y, Z = SHAPES[SIZE]
#: Too large for copies in several engines at once: NumPy has its own, then Terrace, and nobody else; and no answer of four times the field.
IS_HUGE = SIZE == "4GiB"
random = np.random.default_rng(7)
v = random.random((X, Y, Z)) * 4000 + 1500
w = random.random((X, Y, Z))
LOW, HIGH = X // 4, X // 2
THRESHOLD = float(np.quantile(v[:4], 0.99))
MIDDLE = 3500.0
FACTORS = np.array([0.5, 1.0, 2.0])
#: Values are counted by classes so wide.
CLASS = 50.0
#: Cells of y and of z that become one.
BLOCK = 4
#: Compared in the answer's own order: it may be any.
AS_SETS = ("a column", "a column with its coordinates")
SUM = v.sum()


class NumPy:
    name = "NumPy"
    queries = {
        "range subset": lambda: v[LOW : HIGH + 1, 100:121, 50:71].copy(),
        "subset, mean by x": lambda: v[LOW : HIGH + 1].mean(axis=(1, 2)),
        "mean by x": lambda: v.mean(axis=(1, 2)),
        "mean by z": lambda: v.mean(axis=(0, 1)),
        "filter of 1%, with coordinates": lambda: (*np.nonzero(v > THRESHOLD), v[v > THRESHOLD]),
        "filter, count and sum": lambda: ((m := v > MIDDLE).sum(), v[m].sum()),
        "two fields joined, mean by x": lambda: (v - w).mean(axis=(1, 2)),
        "crossed with three factors, mean by factor": lambda: np.array([(v * factor).mean() for factor in FACTORS]),
        "cells at the maximum of their x": lambda: np.nonzero(v == v.max(axis=(1, 2))[:, None, None]),
        "a column": lambda: v.copy(),
        "a column with its coordinates": lambda: (*np.indices(v.shape), v.copy()),
        "ten greatest": lambda: np.sort(np.partition(v.reshape(-1), v.size - 10)[-10:]),
        "mean by classes of values": lambda: classes(),
        "median by x": lambda: np.median(v, axis=(1, 2)),
        "differences of neighbours along x": lambda: np.abs(v[1:] - v[:-1]).sum(),
        "second differences along z": lambda: np.abs(v[..., :-2] - 2 * v[..., 1:-1] + v[..., 2:]).sum(),
        "means of blocks": lambda: blocks(),
        "distance from moving average along x": lambda: np.abs(v - moving()).sum(),
    }


def moving():
    """Of each cell and its neighbours, as many as there are."""
    sums, counts = v.copy(), np.full(X, 3.0)
    sums[1:] += v[:-1]
    sums[:-1] += v[1:]
    counts[0] = counts[-1] = 2
    return sums / counts[:, None, None]


def blocks():
    y, z = np.arange(0, Y, BLOCK), np.arange(0, Z, BLOCK)
    cells = np.outer(np.diff(y, append=Y), np.diff(z, append=Z))
    return np.add.reduceat(np.add.reduceat(v, y, axis=1), z, axis=2) / cells


def classes():
    numbers = np.floor(v / CLASS).astype(np.int64).reshape(-1)
    counts = np.bincount(numbers)
    sums = np.bincount(numbers, v.reshape(-1))
    there = np.nonzero(counts)[0]
    return there, sums[there] / counts[there]


def dask_queries():
    import dask.array
    import xarray

    chunks = (max(1, X // 8), Y, Z)
    dataset = xarray.Dataset(
        {"v": (("x", "y", "z"), dask.array.from_array(v, chunks)), "w": (("x", "y", "z"), dask.array.from_array(w, chunks))},
        coords={"x": np.arange(X), "y": np.arange(Y), "z": np.arange(Z)},
    )
    dv, dw = dataset["v"], dataset["w"]

    def filtered():
        mask = (dv > THRESHOLD).data
        places = dask.array.nonzero(mask)
        return dask.compute(*places, dv.data[mask])

    return {
        "range subset": lambda: dv.sel(x=slice(LOW, HIGH), y=slice(100, 120), z=slice(50, 70)).compute(),
        "subset, mean by x": lambda: dv.sel(x=slice(LOW, HIGH)).mean(["y", "z"]).compute(),
        "mean by x": lambda: dv.mean(["y", "z"]).compute(),
        "mean by z": lambda: dv.mean(["x", "y"]).compute(),
        "filter of 1%, with coordinates": filtered,
        "filter, count and sum": lambda: dask.compute((dv > MIDDLE).sum().data, dv.where(dv > MIDDLE).sum().data),
        "two fields joined, mean by x": lambda: (dv - dw).mean(["y", "z"]).compute(),
        "crossed with three factors, mean by factor": lambda: dask.compute(*((dv * factor).mean().data for factor in FACTORS)),
        "cells at the maximum of their x": lambda: dask.compute(*dask.array.nonzero((dv == dv.max(["y", "z"])).data)),
        "a column": lambda: dv.compute().copy(),
        "ten greatest": lambda: dask.array.topk(dv.data.reshape(-1), 10).compute(),
        "median by x": lambda: dv.chunk({"y": -1, "z": -1}).median(["y", "z"]).compute(),
        "differences of neighbours along x": lambda: abs(dv.diff("x")).sum().compute(),
        "second differences along z": lambda: abs(dv.diff("z", n=2)).sum().compute(),
        "means of blocks": lambda: dv.coarsen(y=BLOCK, z=BLOCK, boundary="pad").mean().compute(),
        "distance from moving average along x": lambda: abs(dv - dv.rolling(x=3, center=True, min_periods=1).mean()).sum().compute(),
    }


SQL = {
    "range subset": f"SELECT x, y, z, v FROM {{t}} WHERE x BETWEEN {LOW} AND {HIGH} AND y BETWEEN 100 AND 120 AND z BETWEEN 50 AND 70",
    "subset, mean by x": f"SELECT x, avg(v) AS m FROM {{t}} WHERE x BETWEEN {LOW} AND {HIGH} GROUP BY x",
    "mean by x": "SELECT x, avg(v) AS m FROM {t} GROUP BY x",
    "mean by z": "SELECT z, avg(v) AS m FROM {t} GROUP BY z",
    "filter of 1%, with coordinates": f"SELECT x, y, z, v FROM {{t}} WHERE v > {THRESHOLD!r}",
    "filter, count and sum": f"SELECT count(*) AS n, sum(v) AS s FROM {{t}} WHERE v > {MIDDLE!r}",
    "two fields joined, mean by x": "SELECT a.x, avg(a.v - b.w) AS m FROM {t} a JOIN {u} b ON a.x = b.x AND a.y = b.y AND a.z = b.z GROUP BY a.x",
    "crossed with three factors, mean by factor": "SELECT f.k, avg(a.v * f.factor) AS m FROM {t} a CROSS JOIN {f} f GROUP BY f.k",
    "cells at the maximum of their x": "SELECT a.x, y, z FROM {t} a JOIN (SELECT x, max(v) AS m FROM {t} GROUP BY x) q ON a.x = q.x AND a.v = q.m",
    "a column": "SELECT v FROM {t}",
    "a column with its coordinates": "SELECT x, y, z, v FROM {t}",
    "ten greatest": "SELECT v FROM {t} ORDER BY v DESC LIMIT 10",
    "mean by classes of values": f"SELECT CAST(floor(v / {CLASS}) AS BIGINT) AS k, avg(v) AS m FROM {{t}} GROUP BY k",
    "median by x": "SELECT x, median(v) AS m FROM {t} GROUP BY x",
    "differences of neighbours along x": "SELECT sum(abs(a.v - b.v)) AS s FROM {t} a JOIN {t} b ON a.x = b.x + 1 AND a.y = b.y AND a.z = b.z",
    "second differences along z": "SELECT sum(abs(a.v - 2 * b.v + c.v)) AS s FROM {t} b JOIN {t} a ON a.z = b.z - 1 AND a.y = b.y AND a.x = b.x "
    "JOIN {t} c ON c.z = b.z + 1 AND c.y = b.y AND c.x = b.x",
    "means of blocks": f"SELECT x, CAST(floor(y / {BLOCK}.0) AS BIGINT) AS b, CAST(floor(z / {BLOCK}.0) AS BIGINT) AS c, avg(v) AS m "
    "FROM {t} GROUP BY x, b, c",
    "distance from moving average along x": "SELECT sum(abs(v - m)) AS s FROM (SELECT v, avg(v) OVER "
    "(PARTITION BY y, z ORDER BY x ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM {t}) q",
}


def named(text, grid, other, factors):
    return text.format(t=grid, u=other, f=factors)


def parquet_files():
    import pyarrow as pa
    import pyarrow.parquet

    paths = {name: asked.directory / f"{name}.parquet" for name in "vw"}
    if not paths["v"].exists():
        for name, field in (("v", v), ("w", w)):
            schema = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64()), (name, pa.float64())])
            with pa.parquet.ParquetWriter(paths[name], schema, compression="none") as writer:
                y, z = (part.reshape(-1) for part in np.meshgrid(np.arange(Y), np.arange(Z), indexing="ij"))
                for x in range(X):
                    writer.write_table(pa.table([np.full(Y * Z, x), y, z, field[x].reshape(-1)], schema))
    return paths


def duckdb_queries():
    import duckdb

    paths = parquet_files()
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    for name, path in paths.items():
        connection.execute(f"CREATE TABLE {name}t AS SELECT * FROM '{path}'")
    connection.execute("CREATE TABLE ft (k BIGINT, factor DOUBLE)")
    connection.executemany("INSERT INTO ft VALUES (?, ?)", list(enumerate(FACTORS.tolist())))
    return {name: (lambda text=named(text, "vt", "wt", "ft"): connection.execute(text).to_arrow_table()) for name, text in SQL.items()}


def datafusion_queries():
    import datafusion

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(2))
    for name, path in parquet_files().items():
        context.register_parquet(f"{name}t", str(path))
    context.from_pydict({"k": list(range(len(FACTORS))), "factor": FACTORS.tolist()}, "ft")
    return {name: (lambda text=named(text, "vt", "wt", "ft"): context.sql(text).to_arrow_table()) for name, text in SQL.items()}


def terrace_queries():
    import terrace

    session = terrace.connect()
    begun = time.perf_counter()
    for container, name, field in (("grid", "v", v), ("other", "w", w)):
        array = session.create_container(container).create_array(name, (X, Y, Z), "f8", dimensions=["x", "y", "z"])
        # Two writers' halves.
        array[: X // 2] = field[: X // 2]
        array[X // 2 :] = field[X // 2 :]
    if IS_HUGE:
        globals().update(v=None, w=None)  # NumPy has had its turn
    print(f"staged {2 * 8 * X * Y * Z / 2**20:.0f} MiB in {time.perf_counter() - begun:.2f} s", file=sys.stderr)
    factors = session.create_container("factors").create_array("factor", FACTORS.shape, "f8", dimensions=["k"])
    factors[:] = FACTORS
    return {name: (lambda text=named(text, "grid", "other", "factors"): session.sql(text).arrow()) for name, text in SQL.items()}


def packed(answer):
    """Numbers of an answer as its engine has them: no order for as many rows as cells."""
    if hasattr(answer, "read_all"):
        answer = answer.read_all()
    return [answer.column(name).to_numpy() for name in answer.column_names]


def values(answer):
    """Numbers of an answer in one order, whatever the engine gave: coordinates, then values."""
    if hasattr(answer, "read_all"):
        answer = answer.read_all()
    if hasattr(answer, "to_batches"):
        columns = [answer.column(name).to_numpy().astype(float) for name in answer.column_names]
        return np.stack([column[np.lexsort(columns[::-1])] for column in columns]) if columns else np.empty(0)
    return answer


def check(query, answer, wanted):
    got = packed(answer) if query in AS_SETS else values(answer)
    match query:
        case "subset, mean by x" | "mean by x" | "mean by z" | "two fields joined, mean by x" | "crossed with three factors, mean by factor":
            np.testing.assert_allclose(got[1], wanted, rtol=1e-9)
        case "range subset":
            np.testing.assert_array_equal(got[3], wanted.reshape(-1))
        case "filter of 1%, with coordinates":
            np.testing.assert_array_equal(got, np.stack([part.astype(float) for part in wanted]))
        case "a column" | "a column with its coordinates":
            assert len(got[-1]) == X * Y * Z and np.isclose(got[-1].sum(), SUM, rtol=1e-9)
        case "ten greatest":
            np.testing.assert_array_equal(got[0], wanted)
        case "means of blocks":
            np.testing.assert_allclose(got[3], wanted.reshape(-1), rtol=1e-9)
        case "distance from moving average along x" | "differences of neighbours along x" | "second differences along z":
            assert np.isclose(got[0][0], wanted, rtol=1e-9)
        case "mean by classes of values" | "median by x":
            np.testing.assert_allclose(got[1], wanted[1] if isinstance(wanted, tuple) else wanted, rtol=1e-9)
        case "filter, count and sum":
            assert got[0][0] == wanted[0] and np.isclose(got[1][0], wanted[1], rtol=1e-9)
        case _:
            np.testing.assert_array_equal(got, np.stack([part.astype(float) for part in wanted]))


def measure(call, repeat):
    times = []
    # One answer is there while the next is made: memory of as many as that, and of one more, is touched before.
    for _ in range(3 if repeat > 1 and not IS_HUGE else 1):
        answer = call()
    for _ in range(repeat):
        gc.collect()
        begun = time.perf_counter()
        answer = call()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times), answer


def main():
    facts = provenance("benchmarks/queries/run.sh " + " ".join(sys.argv[2:]))
    wanted, results = {}, {}
    engines = {"NumPy": lambda: NumPy.queries, "Terrace": terrace_queries}
    if not asked.terrace_only and not IS_HUGE:
        engines |= {"xarray + Dask": dask_queries, "DuckDB": duckdb_queries, "DataFusion, Parquet": datafusion_queries}
    for engine, prepare in engines.items():
        queries = prepare()
        for query, call in queries.items():
            if IS_HUGE and query == "a column with its coordinates":
                continue
            # What takes seconds is not measured as often.
            slow = engine in ("DuckDB", "DataFusion, Parquet") and any(word in query for word in ("joined", "maximum", "crossed", "differences"))
            median, answer = measure(call, 1 if slow else asked.repeat)
            if engine == "NumPy":
                wanted[query] = None if query in AS_SETS else answer
            elif engine != "xarray + Dask":
                check(query, answer, wanted[query])
            results.setdefault(query, {})[engine] = median
            answer = None
            print(f"{engine:20} {query:34} {median:9.1f} ms", file=sys.stderr)
    if asked.quick or asked.terrace_only:
        return
    facts["load"] = os.getloadavg()[0]
    path = RESULTS / "queries.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    # Each size has its own run.
    known = known if "sizes" in known else {"sizes": {}}
    known["sizes"][SIZE] = {"facts": facts, "shape": [X, Y, Z], "ms": results}
    path.write_text(json.dumps(known, indent=1) + "\n")
    names = list(engines)
    lines = ["# Queries on a grid", "",
             "Fields of float64, staged in two pieces in a tier in memory; the other engines have theirs in memory too (DuckDB in its own tables,",
             "DataFusion as Parquet without compression in /dev/shm). Medians in ms; answers of Terrace, DuckDB and DataFusion were compared with",
             "NumPy's. Terrace's times include the way into Python. Fields of 4 GiB are NumPy's and Terrace's alone, after one another: more copies of",
             "them need more memory. A size without a table has not been measured yet."]
    for size in SHAPES:
        if size not in known["sizes"]:
            lines += ["", f"## {size} a field", "", "pending"]
            continue
        one = known["sizes"][size]
        lines += ["", f"## {size} a field", "", provenance_line(one["facts"]),
                  f"A grid of {' x '.join(map(str, one['shape']))}. The machine's load at the end was {one['facts']['load']:.1f}.", "",
                  "| query | " + " | ".join(names) + " | Terrace / NumPy |", "| --- |" + " ---: |" * (len(names) + 1)]
        for query, times in one["ms"].items():
            cells = [f"{times[name]:.1f}" if name in times else "–" for name in names]
            lines.append(f"| {query} | " + " | ".join(cells) + f" | {times['Terrace'] / times['NumPy']:.2f} |")
    (RESULTS / "queries.md").write_text("\n".join(lines) + "\n")


main()
