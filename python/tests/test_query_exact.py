"""SQL that means what it says, on columns of each type: numbers with a point, and whole numbers that grow."""

from __future__ import annotations

import numpy as np
import pytest

import terrace

pytest.importorskip("pyarrow")

VALUES = [4.7, 0.1, 0.2, -4.7, 1e30, 2.5]


@pytest.fixture
def exact(session, query_program):
    if session.exists("exact"):
        session.remove("exact", recursive=True)
    container = session.create_container("exact")
    for name, kind, values in [
        ("v", "f4", VALUES),
        ("d", "f8", VALUES),
        ("u", "u1", [0, 1, 100, 200, 255, 16]),
        ("i", "i4", [-(2**31), -1, 0, 1, 2**31 - 1, 46341]),
        ("l", "i8", [-(2**62), -1, 0, 1, 2**62, 3037000500]),
        ("w", "u8", [0, 1, 2, 3, 2**63, 2**32]),
    ]:
        container.create_array(name, (6,), kind, dimensions=["x"])[...] = np.array(values, dtype=kind)
    return session


def found(session, condition: str) -> list[int]:
    return sorted(session.sql(f"SELECT x FROM exact WHERE {condition}").numpy()["x"].tolist())


@pytest.mark.parametrize("column", ["v", "d"])
def test_a_decimal_finds_the_float_that_was_put_as_it(exact, column):
    for condition, wanted in [
        ("{} = 4.7", [0]),
        ("4.7 = {}", [0]),
        ("{} = -4.7", [3]),
        ("{} <> 4.7", [1, 2, 3, 4, 5]),
        ("{} IN (0.1, 0.2)", [1, 2]),
        ("{} NOT IN (0.1, 0.2, 2.5)", [0, 3, 4]),
        ("{} BETWEEN 0.1 AND 0.2", [1, 2]),
        ("{} >= 4.7", [0, 4]),
        ("{} > 4.7", [4]),
        ("{} <= 0.1", [1, 3]),
        ("{} < 1e300", [0, 1, 2, 3, 4, 5]),
        ("{} IS DISTINCT FROM 4.7", [1, 2, 3, 4, 5]),
        ("CASE {} WHEN 4.7 THEN true ELSE false END", [0]),
        ("x IN (SELECT x FROM exact WHERE {} = 4.7)", [0]),
        ("{} = 4.7 AND u * u = 0", [0]),
    ]:
        assert found(exact, condition.format(column)) == wanted, condition
    assert exact.sql(f"SELECT count(*) AS n FROM exact WHERE {column} = 4.7").numpy()["n"].tolist() == [1]
    # Who says that a 64-bit float is meant gets one.
    assert found(exact, "v = CAST(4.7 AS DOUBLE)") == []


def test_whole_numbers_do_not_go_round(exact):
    one = lambda query: exact.sql(f"SELECT {query} AS n FROM exact").numpy()["n"].tolist()  # noqa: E731
    u = [0, 1, 100, 200, 255, 16]
    i = [-(2**31), -1, 0, 1, 2**31 - 1, 46341]
    assert one("sum(u * u)") == [sum(value * value for value in u)]
    assert sorted(one("u * u")) == sorted(value * value for value in u)
    assert sorted(one("u - 255")) == sorted(value - 255 for value in u)
    assert sorted(one("u - u * u")) == sorted(value - value * value for value in u)
    assert sorted(one("i * i")) == sorted(value * value for value in i)
    assert sorted(one("i + u")) == sorted(a + b for a, b in zip(i, u))
    assert sorted(one("w + 1")) == sorted(value + 1 for value in [0, 1, 2, 3, 2**63, 2**32])
    assert one("sum(u * x) + max(u + u + u)") == [sum(a * b for a, b in enumerate(u)) + 765]
    assert found(exact, "u * u > 255") == [2, 3, 4, 5]
    # A name that nobody has given stays what it was.
    assert exact.sql("SELECT u * u FROM exact").arrow().column_names == ["exact.u * exact.u"]
    for query in ["l * l", "sum(l * 4)", "l + l + l", "l - 9223372036854775807", "w * w", "w - 5", "i * i * i * i"]:
        with pytest.raises(terrace.TerraceError, match="does not fit in a 64-bit integer") as refused:
            one(query)
        assert "CAST" in str(refused.value.hint), query
    # Only rows count.
    assert exact.sql("SELECT sum(l * l) AS n FROM exact WHERE x BETWEEN 1 AND 3").numpy()["n"].tolist() == [2]


def test_a_sample_is_refused_by_name(exact):
    for query in [
        "SELECT * FROM exact TABLESAMPLE BERNOULLI (10)",
        "SELECT * FROM (SELECT x FROM exact) TABLESAMPLE (10 PERCENT)",
        "EXPLAIN SELECT * FROM exact tablesample system (5)",
        "WITH q AS (SELECT x FROM exact TABLESAMPLE (3 ROWS)) SELECT * FROM q",
    ]:
        with pytest.raises(terrace.TerraceError, match="TABLESAMPLE is not supported"):
            exact.sql(query)
    assert exact.sql("SELECT 'tablesample' AS t").arrow()["t"].to_pylist() == ["tablesample"]


def test_cf_times_are_timestamps(exact):
    container = exact.create_container("cf")
    days = np.array([0, 0.25, 366, -1.5, np.nan])
    container.create_array("d", (5,), "f8", dimensions=["x"])[...] = days
    container.create_array("h", (5,), "i4", dimensions=["x"])[...] = np.arange(5) * 1000
    found = exact.sql("SELECT cf_time(d, 'days since 2000-01-01') AS d, cf_time(h, 'hours since 1900-01-01 12:00', 'gregorian') AS h FROM cf ORDER BY x").numpy()
    wanted = np.datetime64("2000-01-01", "us") + np.array([0, 6, 366 * 24, -36]).astype("m8[h]")
    np.testing.assert_array_equal(found["d"][:4], wanted)
    assert np.isnat(found["d"][4])
    np.testing.assert_array_equal(found["h"], np.datetime64("1900-01-01T12", "us") + (np.arange(5) * 1000).astype("m8[h]"))
    where = "cf_time(d, 'days since 2000-01-01') >= TIMESTAMP '2000-01-01 06:00:00'"
    assert exact.sql(f"SELECT x FROM cf WHERE {where} ORDER BY x").numpy()["x"].tolist() == [1, 2]
    groups = exact.sql("SELECT date_part('year', cf_time(d, 'days since 2000-01-01')) AS year, count(*) AS n FROM cf WHERE x < 4 GROUP BY 1 ORDER BY 1")
    assert groups.numpy()["n"].tolist() == [1, 2, 1]
    for wrong in ["'months since 2000-01-01'", "'days'", "'days since 2000-01-01', 'noleap'", "'days since 0001-01-01'", "d"]:
        with pytest.raises(terrace.InvalidError, match="cf_time"):
            exact.sql(f"SELECT cf_time(d, {wrong}) FROM cf").arrow()


def test_times_texts_and_half_floats_are_columns(exact):
    container = exact.create_container("kinds")
    times = np.array(["2020-02-28T12", "NaT", "1969-12-31T23", "2020-03-01T00"], "M8[h]")
    spans = np.array([90, -1, "NaT", 0], "m8[ms]")
    texts = np.array(["Zürich", "日本", "", "b\U0001f30d"])
    halves = np.array([0.1, -65504, 6e-8, 2.5], "f2")
    for name, values in [("t", times), ("d", times.astype("M8[D]")), ("n", times.astype("M8[ns]")), ("s", spans), ("u", texts), ("h", halves)]:
        array = container.create_array(name, (4,), values.dtype, dimensions=["x"])
        array[...] = values
        np.testing.assert_array_equal(array[...], values)
        assert array.dtype == values.dtype
    found = exact.sql("SELECT * FROM kinds ORDER BY x").numpy()
    np.testing.assert_array_equal(found["t"], times)
    np.testing.assert_array_equal(found["d"], times.astype("M8[D]"))
    np.testing.assert_array_equal(found["n"], times)
    np.testing.assert_array_equal(found["s"], spans)
    assert found["u"].tolist() == texts.tolist()
    assert found["h"].dtype == np.float32 and found["h"].tolist() == halves.astype("f4").tolist()
    assert (found["n"].dtype, found["s"].dtype) == (np.dtype("M8[ns]"), np.dtype("m8[ms]"))

    def of(condition: str) -> list[int]:
        return exact.sql(f"SELECT x FROM kinds WHERE {condition} ORDER BY x").numpy()["x"].tolist()

    assert of("t >= TIMESTAMP '2020-02-28 12:00:00'") == [0, 3] and of("t IS NULL") == [1] and of("d = DATE '2020-03-01'") == [3]
    assert of("n < TIMESTAMP '2000-01-01'") == [2] and of("s > INTERVAL '0' SECOND") == [0]
    assert of("u = '日本'") == [1] and of("u LIKE 'b%'") == [3] and of("u = ''") == [2]
    assert of("h > 0.05") == [0, 3] and of("h = 2.5") == [3] and of("h < 0") == [1]
    told = exact.sql("SELECT count(t) AS n, count(*) AS all, min(t) AS a, max(n) AS b, sum(h) AS h, max(u) AS u, avg(h) AS m FROM kinds").numpy()
    assert (told["n"][0], told["all"][0], told["u"][0]) == (3, 4, max(texts))
    assert (told["a"][0], told["b"][0]) == (times[2], times[3])
    assert told["h"][0] == halves.astype("f8").sum() and told["m"][0] == halves.astype("f8").mean()
    months = exact.sql("SELECT date_trunc('month', t) AS m, count(*) AS n FROM kinds WHERE t IS NOT NULL GROUP BY 1 ORDER BY 1").numpy()
    assert months["n"].tolist() == [1, 1, 1]
    joined = exact.sql("SELECT a.x FROM kinds a JOIN kinds b ON a.t = b.n AND a.u = b.u AND a.h = b.h ORDER BY 1").numpy()
    assert joined["x"].tolist() == [0, 2, 3]


def test_coordinates_may_be_times_and_texts(exact):
    container = exact.create_container("places")
    container.create_array("time", (3,), "M8[D]", dimensions=["time"])[...] = np.array(["2020-01-01", "2020-01-03", "2020-02-01"], "M8[D]")
    container.create_array("town", (2,), "U6", dimensions=["town"])[...] = ["Zürich", "Köln"]
    container.create_array("v", (3, 2), dimensions=["time", "town"])[...] = np.arange(6.0).reshape(3, 2)
    found = exact.sql("SELECT time, v FROM places WHERE town = 'Köln' AND time > DATE '2020-01-01' ORDER BY time").numpy()
    assert found["v"].tolist() == [3, 5] and found["time"][0] == np.datetime64("2020-01-03")
    means = exact.sql("SELECT town, avg(v) AS v FROM places GROUP BY town ORDER BY town").numpy()
    assert means["town"].tolist() == ["Köln", "Zürich"] and means["v"].tolist() == [3, 2]
    # A time that is none yet: the dimension is an index until it is put.
    container["time"][2] = np.datetime64("NaT")
    rows = exact.sql("SELECT * FROM places WHERE town = 'Köln' ORDER BY time")
    columns = rows.numpy()
    assert columns["time"].tolist() == [0, 1, 2] and np.isnat(columns["time'"]).tolist() == [False, False, True]


def test_complex_columns_come_as_complex_numbers(exact):
    container = exact.create_container("waves")
    values = np.array([1 + 2j, -1j, 0, 3])
    container.create_array("c", (4,), "c8", dimensions=["x"])[...] = values
    container.create_array("z", (4,), "c16", dimensions=["x"])[...] = values
    rows = "SELECT x, c, z * 2 AS z, abs(c) AS a FROM waves ORDER BY x"
    found = exact.sql(rows).numpy()
    assert (found["c"].dtype, found["z"].dtype, found["a"].dtype) == (np.complex64, np.complex128, np.float32)
    np.testing.assert_array_equal(found["c"], values)
    np.testing.assert_array_equal(found["z"], values * 2)
    assert exact.sql("SELECT c FROM waves WHERE c = 3 OR c = complex(0, -1) ORDER BY x").numpy()["c"].tolist() == [-1j, 3]
    # One that is missing is NaN; rows that are sliced keep their own.
    joined = exact.sql("SELECT a.x, b.c FROM waves a LEFT JOIN waves b ON a.x = b.x + 1 ORDER BY a.x").numpy()["c"]
    assert np.isnan(joined[0]) and joined[1:].tolist() == values[:3].tolist()
    assert exact.sql("SELECT c FROM waves WHERE x > 9").numpy()["c"].dtype == np.complex64
    pytest.importorskip("pandas")
    assert exact.sql(rows).pandas()["c"].tolist() == values.tolist()
    pytest.importorskip("xarray")
    data = exact.sql("SELECT x, c FROM waves WHERE x <> 1").xarray(["x"])
    assert data["c"].values.tolist() == [1 + 2j, 0, 3]
    assert exact.sql("SELECT sum(c) AS s, mean(c) AS m FROM waves").numpy()["s"].tolist() == [values.sum()]
    with pytest.raises(terrace.TerraceError, match="no `<`"):
        exact.sql("SELECT c < 1 FROM waves").arrow()


def test_a_vector_of_savimes_is_one_column(exact):
    exact.savime("""create_tar('flow', '*', 'implicit,x,int,0,2,1', 'v,double:2 | a,int');
        create_dataset('d:double:2', literal(1, 2, 3, 4, 5, 6)); create_dataset('e:int', literal(7, 8, 9));
        load_subtar('flow', 'ordered,x,0,2', 'v,d | a,e')""")
    found = exact.savime("scan(flow)")
    assert found.columns == ["x", "a", "v"]
    found = found.numpy()
    assert found["v"].tolist() == [[1, 2], [3, 4], [5, 6]] and found["a"].tolist() == [7, 8, 9]
    # A component that is chosen stays one, here and in SQL.
    assert exact.savime("select(where(flow, v:1 > 2), x, v:1)").numpy()["v:1"].tolist() == [4, 6]
    assert exact.sql('SELECT sum("v:0" * "v:1") AS s FROM flow').numpy()["s"].tolist() == [44]
    pytest.importorskip("xarray")
    data = exact.savime("scan(flow)").xarray(["x"])
    assert data["v"].dims == ("x", "v_component") and data["v"].values.tolist() == [[1, 2], [3, 4], [5, 6]]
