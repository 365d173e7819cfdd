"""SQL from Python."""

from __future__ import annotations

import os

import numpy as np
import pytest

import terrace

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def study(session, query_program):
    name = "queries"
    if session.exists(name):
        session.remove(name, recursive=True)
    container = session.create_container(name)
    v = container.create_array("v", (4, 3), "f8", dimensions=["x", "y"])
    v[...] = np.arange(12.0).reshape(4, 3)
    y = container.create_array("y", (3,), "i4", dimensions=["y"])
    y[...] = [10, 20, 40]
    return container


def test_an_answer_is_arrow_pandas_numpy_and_xarray(session, study):
    query = "SELECT x, y, v FROM queries WHERE v > 4"
    table = session.sql(query).arrow()
    assert table.column_names == ["x", "y", "v"] and table.num_rows == 7
    assert sorted(table["v"].to_pylist()) == [5, 6, 7, 8, 9, 10, 11]
    assert pyarrow.table(session.sql(query)).equals(table)
    columns = session.sql("SELECT x, avg(v) AS mean FROM queries GROUP BY x ORDER BY x").numpy()
    np.testing.assert_array_equal(columns["mean"], study["v"][...].mean(axis=1))
    pandas = pytest.importorskip("pandas")
    assert isinstance(session.sql(query).pandas(), pandas.DataFrame)
    dataset = session.sql(query).xarray(["x", "y"])
    whole = study["v"][...]
    np.testing.assert_array_equal(dataset["v"], np.where(whole > 4, whole, np.nan)[1:])
    np.testing.assert_array_equal(dataset["y"], [10, 20, 40])


def test_an_answer_that_was_not_read_is_whole_after_the_next_query(session, study):
    first = session.sql("SELECT v FROM queries ORDER BY v")
    second = session.sql("SELECT count(*) AS n FROM queries")
    assert second.numpy()["n"].tolist() == [12]
    assert first.numpy()["v"].tolist() == list(range(12))


def test_what_is_wrong_with_a_query_is_an_error_and_the_next_one_is_answered(session, study):
    with pytest.raises(terrace.TerraceError, match="nothing"):
        session.sql("SELECT nothing FROM queries")
    with pytest.raises(ValueError, match="same name"):
        session.sql("SELECT a.v, b.v FROM queries a JOIN queries b USING (x, y)").numpy()
    with pytest.raises(terrace.TerraceError, match="nested"):
        session.sql("SELECT " + "+".join(["1"] * 20000))
    # It fails among the rows.
    with pytest.raises(terrace.TerraceError, match="[Dd]ivide by zero"):
        session.sql("SELECT 1 / (CAST(v AS BIGINT) - 7) AS q FROM queries").arrow()
    with pytest.raises(ValueError, match="same x"):
        session.sql("SELECT x, v FROM queries").xarray(["x"])
    assert session.sql("SELECT 1 AS one").numpy()["one"].tolist() == [1]


def test_a_child_process_asks_for_itself(session, study):
    session.sql("SELECT v FROM queries")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer = session.sql("SELECT max(v) AS top FROM queries").numpy()["top"][0]
        os.write(write, str(answer).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"11.0"
    assert session.sql("SELECT min(v) AS low FROM queries").numpy()["low"].tolist() == [0]


def test_what_is_put_is_asked_at_once(session, study):
    for turn in range(20):
        study["v"][2] = turn
        assert session.sql("SELECT avg(v) AS m FROM queries WHERE x = 2").numpy()["m"].tolist() == [turn]
