"""Neighbours, blocks and points between cells: what NumPy says of the same arrays, by array plans."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import terrace

pytest.importorskip("pyarrow")

T, Y, X = 7, 20, 33
LATITUDES = np.linspace(60, -60, Y)
LONGITUDES = np.arange(X) * 2.5
FIELD = np.random.default_rng(5).random((T, Y, X)).astype("f4")


@pytest.fixture
def sky(session, query_program):
    if session.exists("sky"):
        session.remove("sky", recursive=True)
    container = session.create_container("sky")
    container.create_array("lat", (Y,), "f8", dimensions=["lat"])[...] = LATITUDES
    container.create_array("lon", (X,), "f8", dimensions=["lon"])[...] = LONGITUDES
    array = container.create_array("t2m", (T, Y, X), "f4", dimensions=["time", "lat", "lon"])
    # Several writers' pieces.
    for rows, columns in itertools.product((slice(0, 9), slice(9, Y)), (slice(0, 16), slice(16, X))):
        array[:, rows, columns] = FIELD[:, rows, columns]
    return session


def plan(session, query: str) -> str:
    return "\n".join(session.sql(f"EXPLAIN {query}").arrow().column("plan").to_pylist())


def test_differences_of_neighbours_are_those_of_numpy_and_need_no_hash_table(sky):
    query = """SELECT a.time, b.time AS before, sum(abs(CAST(a.t2m AS DOUBLE) - b.t2m)) AS s FROM sky a JOIN sky b
        ON a.time = b.time + 1 AND a.lat = b.lat AND a.lon = b.lon GROUP BY a.time, b.time ORDER BY a.time"""
    found = sky.sql(query).numpy()
    assert found["time"].tolist() == list(range(1, T)) and found["before"].tolist() == list(range(T - 1))
    field = FIELD.astype("f8")
    np.testing.assert_allclose(found["s"], np.abs(field[1:] - field[:-1]).sum(axis=(1, 2)), rtol=1e-12)
    one = query.replace("a.time, b.time AS before, ", "").replace("GROUP BY a.time, b.time ORDER BY a.time", "")
    assert "GridReduce" in plan(sky, one) and "HashJoin" not in plan(sky, one)


def test_a_stencil_at_coordinates_that_are_floats(sky):
    query = """SELECT c.time, c.lat, c.lon, w.lon AS west, CAST(w.t2m AS DOUBLE) + e.t2m - 2 * CAST(c.t2m AS DOUBLE) AS d FROM sky c
        JOIN sky w ON w.lon = c.lon - 2.5 AND w.lat = c.lat AND w.time = c.time
        JOIN sky e ON e.lon = c.lon + 2.5 AND e.lat = c.lat AND e.time = c.time WHERE w.lon >= 10"""
    found = sky.sql(query).numpy()
    order = np.lexsort((found["lon"], -found["lat"], found["time"]))
    field = FIELD.astype("f8")
    wanted = (field[..., :-2] + field[..., 2:] - 2 * field[..., 1:-1])[..., 4:]
    np.testing.assert_allclose(found["d"][order], wanted.reshape(-1), rtol=1e-12)
    np.testing.assert_array_equal(found["lon"] - 2.5, found["west"])
    assert "HashJoin" not in plan(sky, query)


def test_coordinates_that_do_not_meet_at_one_shift_are_joined_by_rows(sky):
    query = "SELECT count(*) AS n FROM sky a JOIN sky b ON a.time = b.time * 2 AND a.lat = b.lat AND a.lon = b.lon"
    assert sky.sql(query).numpy()["n"].tolist() == [4 * Y * X]
    # Nothing meets.
    query = "SELECT count(*) AS n FROM sky a JOIN sky b ON a.lon = b.lon + 0.1 AND a.lat = b.lat AND a.time = b.time"
    assert sky.sql(query).numpy()["n"].tolist() == [0]


def test_means_of_blocks_are_those_of_numpy(sky):
    query = """SELECT time / 2 AS t, CAST(floor(lon / 10) AS BIGINT) AS x, avg(t2m) AS m, count(*) AS n, max(t2m) AS most
        FROM sky GROUP BY t, x ORDER BY t, x"""
    found = sky.sql(query).numpy()
    row = 0
    for t, x in itertools.product(range(4), range(9)):
        block = FIELD[2 * t : 2 * t + 2, :, 4 * x : 4 * x + 4].astype("f8")
        assert (found["t"][row], found["x"][row], found["n"][row], found["most"][row]) == (t, x, block.size, block.max())
        np.testing.assert_allclose(found["m"][row], block.mean(), rtol=1e-12)
        row += 1
    assert row == len(found["t"]) and "GridReduce" in plan(sky, query)


def test_groups_that_come_again_are_one(sky):
    query = "SELECT time % 3 AS phase, lat > 0 AS north, median(t2m) AS m, count(*) AS n FROM sky WHERE lon < 40 GROUP BY phase, north"
    found = sky.sql(query).numpy()
    assert "GridReduce" in plan(sky, query) and len(found["m"]) == 6
    for phase, north, median, count in zip(found["phase"], found["north"], found["m"], found["n"], strict=True):
        part = FIELD[phase::3][:, (LATITUDES > 0) == north][..., LONGITUDES < 40]
        assert count == part.size and np.isclose(median, np.median(part), rtol=1e-6)


def between(time, lat, lon) -> float:
    """Linearly along each dimension, one after the other."""
    at = FIELD.astype("f8")
    for point, axis in ((time, np.arange(T)), (-lat, -LATITUDES), (lon, LONGITUDES)):
        flat = at.reshape(len(axis), -1)
        at = np.array([np.interp(point, axis, column) for column in flat.T]).reshape(at.shape[1:])
    return float(at)


def test_points_between_cells_are_interpolated_and_points_outside_are_null(sky):
    random = np.random.default_rng(11)
    count = 500
    points = {"pt": random.uniform(-0.5, T - 0.5, count), "py": random.uniform(-63, 63, count), "px": random.uniform(-2, 84, count)}
    # On cells, and on the last of each dimension.
    points["pt"][:3], points["py"][:3], points["px"][:3] = [0, 3, T - 1], LATITUDES[[0, 7, Y - 1]], LONGITUDES[[0, 9, X - 1]]
    if sky.exists("stations"):
        sky.remove("stations", recursive=True)
    stations = sky.create_container("stations")
    for name, values in points.items():
        stations.create_array(name, (count,), "f8", dimensions=["station"])[...] = values
    found = sky.sql("SELECT station, interpolate('sky', 't2m', pt, py, px) AS v FROM stations ORDER BY station").arrow()
    values = found.column("v").to_pylist()
    inside = (points["pt"] >= 0) & (points["pt"] <= T - 1) & (abs(points["py"]) <= 60) & (points["px"] >= 0) & (points["px"] <= 80)
    assert 0 < inside.sum() < count and [value is not None for value in values] == inside.tolist()
    for station in np.nonzero(inside)[0]:
        wanted = between(points["pt"][station], points["py"][station], points["px"][station])
        np.testing.assert_allclose(values[station], wanted, rtol=1e-9)
    assert values[0] == FIELD[0, 0, 0] and values[1] == FIELD[3, 7, 9] and values[2] == FIELD[T - 1, Y - 1, X - 1]
    one = sky.sql("SELECT interpolate('sky', 't2m', 1.5, 60, 1.25) AS v, interpolate('sky', 't2m', NULL, 60, 1) AS w").arrow()
    assert np.isclose(one.column("v")[0].as_py(), FIELD[1:3, 0, :2].astype("f8").mean()) and one.column("w")[0].as_py() is None


def test_a_missing_neighbour_counts_only_where_it_has_a_part(sky):
    if sky.exists("holes"):
        sky.remove("holes", recursive=True)
    sky.create_container("holes").create_array("v", (4,), "f8", dimensions=["x"])[...] = [1, np.nan, 3, 5]
    found = sky.sql("SELECT interpolate('holes', 'v', x * 0.5) AS v FROM (VALUES (0), (1), (4), (5), (6)) p(x)").numpy()["v"]
    np.testing.assert_array_equal(found, [1, np.nan, 3, 4, 5])


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("interpolate('nothing', 't2m', 0, 0, 0)", "no table `nothing`"),
        ("interpolate('sky', 'rain', 0, 0, 0)", "no array `rain`"),
        ("interpolate('sky', 't2m', 0, 0)", "3 dimensions \\(time, lat, lon\\), and 2 coordinates"),
        ("interpolate('sky', 't2m', 'a', 0, 0)", "and numbers"),
        ("interpolate(1, 2, 3)", "and numbers"),
        ("interpolate(concat('sky', ''), 't2m', 0)", "as texts"),
    ],
)
def test_what_cannot_be_interpolated_is_refused_by_name(sky, call, word):
    with pytest.raises(terrace.TerraceError, match=word):
        sky.sql(f"SELECT {call} AS v").arrow()
