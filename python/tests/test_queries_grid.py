"""A grid that two writers stage step by step, asked as soon as it is there: in SQL from Python, and by Flight SQL with the ADBC driver
as it is. Each answer is NumPy's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import terrace

from flight_server import FlightServer

pyarrow = pytest.importorskip("pyarrow")

STEPS, X, Y, Z = 3, 12, 20, 30
SPACING = 12.5
LEVELS = np.cumsum(np.linspace(1.0, 4.0, Z)).round(3)

WRITER = """
import sys, numpy, terrace
container, half, file = sys.argv[1:]
fields = numpy.load(file)
x = fields["v"].shape[1] // 2
part = slice(0, x) if half == "0" else slice(x, None)
session = terrace.connect()
arrays = {name: session[container][name] for name in fields}
for step in range(fields["v"].shape[0]):
    for name, array in arrays.items():
        array[step, part] = fields[name][step, part]
"""


@pytest.fixture(scope="module")
def fields() -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    shape = (STEPS, X, Y, Z)
    return {"v": random.random(shape) * 4000 + 1500, "w": random.random(shape).astype(np.float32)}


@pytest.fixture(scope="module")
def staged(run, fields, tmp_path_factory) -> str:
    """The container's name, when two processes have staged their halves of each step."""
    container = terrace.connect().create_container("velocity")
    for name, field in fields.items():
        container.create_array(name, (0, X, Y, Z), field.dtype, unlimited=[0], dimensions=["time", "x", "y", "z"])
    container.tags["terrace.dimension.y"] = [100.0, SPACING]
    levels = container.create_array("z", (Z,), np.float64, dimensions=["z"])
    levels[...] = LEVELS
    sources = terrace.connect().create_container("sources")
    sources.create_array("strength", (2,), np.float64, dimensions=["source"])[...] = [2.0, 3.0]
    sources.create_array("place", (2,), np.int64, dimensions=["source"])[...] = [3, 7]
    file = tmp_path_factory.mktemp("fields") / "fields.npz"
    np.savez(file, **fields)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, "velocity", str(half), str(file)], env=run.environment) for half in range(2)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    return "velocity"


Ask = Callable[[str], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def flight(run) -> Iterator[FlightServer]:
    with FlightServer(run.environment) as server:
        yield server


@pytest.fixture(params=["session.sql", "ADBC"])
def ask(request, run, query_program) -> Ask:
    if request.param == "session.sql":
        session = terrace.connect()
        return lambda query: session.sql(query).numpy()

    def by_flight(query: str) -> dict[str, np.ndarray]:
        with request.getfixturevalue("flight").connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
        return {name: table.column(name).to_numpy() for name in table.column_names}

    return by_flight


def ordered(columns: dict[str, np.ndarray], by: int) -> list[np.ndarray]:
    """Rows by their first columns."""
    values = list(columns.values())
    order = np.lexsort(values[:by][::-1])
    return [value[order] for value in values]


def test_a_range_is_its_cells_with_their_coordinates(staged, fields, ask):
    rows = ask(f"SELECT time, x, y, z, v FROM {staged} WHERE time = 1 AND x BETWEEN 3 AND 6 AND y >= 150 AND y < 250 AND z < {LEVELS[9]}")
    time, x, y, z, v = ordered(rows, 4)
    ys = 100 + SPACING * np.arange(Y)
    inside = (ys >= 150) & (ys < 250)
    cells = fields["v"][1, 3:7][:, inside, :9]
    assert (time == 1).all()
    np.testing.assert_array_equal(v, cells.reshape(-1))
    np.testing.assert_array_equal(x, np.repeat(np.arange(3, 7), inside.sum() * 9))
    np.testing.assert_array_equal(y.reshape(4, -1, 9)[0, :, 0], ys[inside])
    np.testing.assert_array_equal(z.reshape(4, -1, 9)[0, 0], LEVELS[:9])


def test_means_along_dimensions(staged, fields, ask):
    v = fields["v"]
    x, mean = ordered(ask(f"SELECT x, avg(v) AS m FROM {staged} WHERE x BETWEEN 2 AND 8 AND time = 2 GROUP BY x"), 1)
    np.testing.assert_array_equal(x, np.arange(2, 9))
    np.testing.assert_allclose(mean, v[2, 2:9].mean(axis=(1, 2)), rtol=1e-12)
    x, mean = ordered(ask(f"SELECT x, avg(v) AS m FROM {staged} GROUP BY x"), 1)
    np.testing.assert_allclose(mean, v.mean(axis=(0, 2, 3)), rtol=1e-12)
    z, mean, low, high = ordered(ask(f"SELECT z, avg(v) AS m, min(v) AS low, max(v) AS high FROM {staged} GROUP BY z"), 1)
    np.testing.assert_array_equal(z, LEVELS)
    np.testing.assert_allclose(mean, v.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_array_equal(low, v.min(axis=(0, 1, 2)))
    np.testing.assert_array_equal(high, v.max(axis=(0, 1, 2)))


def test_a_filter_of_one_percent_gives_values_and_coordinates(staged, fields, ask):
    threshold = float(np.quantile(fields["v"], 0.99))
    time, x, y, z, v = ordered(ask(f"SELECT time, x, y, z, v FROM {staged} WHERE v > {threshold!r}"), 4)
    wanted = fields["v"] > threshold
    for got, place, axis in zip((time, x, y, z), np.nonzero(wanted), (None, None, 100 + SPACING * np.arange(Y), LEVELS), strict=True):
        np.testing.assert_array_equal(got, place if axis is None else axis[place])
    np.testing.assert_array_equal(v, fields["v"][wanted])


def test_a_filter_with_count_and_sum(staged, fields, ask):
    rows = ask(f"SELECT count(*) AS n, sum(v) AS s, sum(w) AS sw FROM {staged} WHERE v > 3500 AND w < 0.5")
    wanted = (fields["v"] > 3500) & (fields["w"] < 0.5)
    assert rows["n"].tolist() == [wanted.sum()]
    np.testing.assert_allclose(rows["s"], [fields["v"][wanted].sum()], rtol=1e-12)
    np.testing.assert_allclose(rows["sw"], [fields["w"][wanted].sum(dtype=np.float64)], rtol=1e-12)


def test_two_fields_joined_on_all_dimensions(staged, fields, ask):
    query = f"""SELECT a.x, avg(a.v - b.w) AS m FROM {staged} a JOIN {staged} b
        ON a.time = b.time AND a.x = b.x AND a.y = b.y AND a.z = b.z GROUP BY a.x"""
    x, mean = ordered(ask(query), 1)
    np.testing.assert_allclose(mean, (fields["v"] - fields["w"]).mean(axis=(0, 2, 3)), rtol=1e-9)


def test_a_join_with_an_aggregate_of_itself(staged, fields, ask):
    query = f"""SELECT a.time, a.x, y, z, v FROM {staged} a
        JOIN (SELECT time, x, max(v) AS m FROM {staged} GROUP BY time, x) q ON a.time = q.time AND a.x = q.x AND a.v = q.m"""
    time, x, y, z, v = ordered(ask(query), 4)
    wanted = fields["v"] == fields["v"].max(axis=(2, 3), keepdims=True)
    np.testing.assert_array_equal(v, fields["v"][wanted])
    np.testing.assert_array_equal(time * X + x, np.nonzero(wanted)[0] * X + np.nonzero(wanted)[1])


def test_a_cross_join_with_a_small_table(staged, fields, ask):
    query = f"""SELECT s.source, sum(g.v * s.strength) AS t FROM {staged} g CROSS JOIN sources s
        WHERE g.time = 0 AND abs(g.x - s.place) <= 1 GROUP BY s.source"""
    source, total = ordered(ask(query), 1)
    v = fields["v"][0]
    np.testing.assert_array_equal(source, [0, 1])
    np.testing.assert_allclose(total, [2 * v[2:5].sum(), 3 * v[6:9].sum()], rtol=1e-12)


def test_sparse_points_are_the_rows_that_were_put(session, place, ask):
    points = place.create_array("p", (1000, 1000), np.float64, dimensions=["x", "y"], fill_value=np.nan)
    place.tags["terrace.sparse"] = True
    random = np.random.default_rng(3)
    model = {}
    for _ in range(40):
        x, y = (int(i) for i in random.integers(0, 1000, 2))
        model[x, y] = float(x * 1000 + y)
        points[x, y] = model[x, y]
    x, y, p = ordered(ask(f'SELECT x, y, p FROM "{place.name}"'), 2)
    assert [((int(a), int(b)), c) for a, b, c in zip(x, y, p, strict=True)] == sorted(model.items())
    rows = ask(f'SELECT count(*) AS n, sum(p) AS s FROM "{place.name}" WHERE x < 500')
    inside = [value for (a, _), value in model.items() if a < 500]
    assert rows["n"].tolist() == [len(inside)] and rows["s"].tolist() == [sum(inside)]


def test_a_step_more_is_seen_by_the_next_query(session, place, ask):
    array = place.create_array("v", (0, 5), np.float64, unlimited=[0], dimensions=["time", "x"])
    for step in range(4):
        array[step] = np.arange(5) + step
        rows = ask(f'SELECT max(time) AS t, count(*) AS n, sum(v) AS s FROM "{place.name}"')
        assert (rows["t"].tolist(), rows["n"].tolist()) == ([step], [5 * (step + 1)])
        assert rows["s"].tolist() == [sum(10 + 5 * i for i in range(step + 1))]


def test_one_step_is_bit_identical_by_every_door(staged, fields, ask):
    """While a writer puts something else."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys, terrace, numpy\na = terrace.connect().create_array('noise/n', (0, 50), unlimited=[0])\n"
         "for i in range(2000): a[i] = numpy.full(50, i)"], env=os.environ,
    ) as writer:
        rows = ask(f"SELECT time, x, y, z, v, w FROM {staged} WHERE time = 2")
        *_, v, w = ordered(rows, 4)
        assert v.tobytes() == fields["v"][2].tobytes() and w.tobytes() == fields["w"][2].tobytes()
        there = terrace.connect()[staged]
        assert there["v"][2].tobytes() == v.tobytes()
        assert writer.wait(120) == 0
    terrace.connect().remove("noise", recursive=True)
