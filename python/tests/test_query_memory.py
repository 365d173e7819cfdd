"""Rows that come by memory which two programs map: they are the rows, and stay what they are."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import terrace

pyarrow = pytest.importorskip("pyarrow")

SHAPE = (40, 100, 60)
LONG = "SELECT count(*) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i + j < 0"
ENDLESS = "SELECT i * j AS k FROM generate_series(1, 3000000) a(i), generate_series(1, 3000000) b(j)"


@pytest.fixture(scope="module")
def cells(run) -> dict[str, np.ndarray]:
    """A container of arrays of each kind, large enough that their columns don't come by the pipe."""
    random = np.random.default_rng(3)
    count = int(np.prod(SHAPE))
    arrays = {
        "v": random.random(SHAPE),
        "f": random.random(SHAPE).astype("f4"),
        "i": np.arange(count, dtype="i2").reshape(SHAPE),
        "u": np.arange(count, dtype="u8").reshape(SHAPE) + 2**63,
        "b": (np.arange(count) % 3 == 0).reshape(SHAPE),
        "c": (random.random(SHAPE) + 1j * random.random(SHAPE)).astype("c16"),
        "s": np.array([b"", b"one", b"seven77"], "S7")[np.arange(count) % 3].reshape(SHAPE),
        "t": np.arange(count).reshape(SHAPE).astype("M8[ms]"),
    }
    arrays["t"][3, 5] = np.datetime64("NaT")
    container = terrace.connect().create_container("cells")
    for name, values in arrays.items():
        container.create_array(name, SHAPE, values.dtype, dimensions=["x", "y", "z"])[...] = values
    return arrays


def in_order(table: pyarrow.Table) -> pyarrow.Table:
    return table.sort_by([("x", "ascending"), ("y", "ascending"), ("z", "ascending")])


@pytest.mark.parametrize("names", [["v"], ["v", "f", "i", "u", "c"], ["s", "b"], ["t", "v"], ["v", "f", "i", "u", "c", "s", "b", "t"]])
def test_rows_of_each_type_are_those_that_were_put(session, query_program, cells, names):
    query = f"SELECT x, y, z, {', '.join(names)} FROM cells"
    by_batches = pyarrow.Table.from_batches(list(session.sql(query).batches()))
    at_once = session.sql(query).arrow()
    assert in_order(by_batches).equals(in_order(at_once)) and at_once.num_rows == np.prod(SHAPE)
    columns = session.sql(query).numpy()
    order = np.lexsort([columns["z"], columns["y"], columns["x"]])
    for name in names:
        found, wanted = columns[name][order], cells[name].reshape(-1)
        if name == "s":
            wanted = wanted.astype("U7")
        np.testing.assert_array_equal(found, wanted, strict=name != "s")
    np.testing.assert_array_equal(columns["y"][order], np.indices(SHAPE)[1].reshape(-1))


def is_lent(column: np.ndarray) -> bool:
    """Whether it lies in memory of the program that answers."""
    address = column.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if start <= address < end:
            return "memfd:terrace rows" in line
    return False


def test_a_column_of_numbers_is_one_array_that_is_not_copied(session, query_program, cells):
    columns = session.sql("SELECT x, v, c FROM cells").numpy()
    assert is_lent(columns["x"]) and is_lent(columns["v"]) and is_lent(columns["c"])
    table = session.sql("SELECT v FROM cells").arrow()
    assert table["v"].num_chunks == 1
    # Few rows, and those of an aggregate, come by the pipe.
    assert not is_lent(session.sql("SELECT x, avg(v) AS m FROM cells GROUP BY x").numpy()["m"])


def lent_files(session) -> int:
    process = session._worker._process
    links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    return sum("terrace rows" in link for link in links)


def test_memory_of_rows_that_nobody_looks_at_is_used_again_and_only_that(session, query_program, cells):
    query = "SELECT v * {} AS w FROM cells ORDER BY x, y, z"
    kept = session.sql(query.format(1)).numpy()["w"]
    for turn in range(2, 12):
        np.testing.assert_array_equal(session.sql(query.format(turn)).numpy()["w"], cells["v"].reshape(-1) * turn)
        gc.collect()
        # Time to be taken back, on a machine that does much else.
        time.sleep(0.1)
    np.testing.assert_array_equal(kept, cells["v"].reshape(-1))
    # That of the first answer, and a few more than one: eleven answers were asked.
    assert lent_files(session) <= 6
    del kept
    end = time.monotonic() + 60
    while lent_files(session):
        assert time.monotonic() < end, "memory is kept though nobody asks"
        time.sleep(0.1)


def test_a_child_keeps_rows_that_its_parent_lets_go_of(session, query_program, cells):
    query = "SELECT v * {} AS w FROM cells ORDER BY x, y, z"
    rows = session.sql(query.format(1)).numpy()["w"]
    (go_on, said_to_go_on), (told, tell) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        os.read(go_on, 1)
        os.write(tell, b"y" if np.array_equal(rows, cells["v"].reshape(-1)) else b"n")
        os._exit(0)
    del rows
    for turn in range(2, 6):
        session.sql(query.format(turn)).numpy()
    os.write(said_to_go_on, b".")
    assert os.read(told, 1) == b"y"
    os.waitpid(child, 0)


def test_rows_outlive_their_session_and_the_program_that_made_them(query_program, cells):
    session = terrace.connect()
    rows = session.sql("SELECT v FROM cells ORDER BY x, y, z").numpy()["v"]
    session._worker.end()
    del session
    np.testing.assert_array_equal(rows, cells["v"].reshape(-1))


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_program_of_a_session_that_is_collected_in_a_cycle_ends_without_a_warning(query_program, cells, is_killed):
    session = terrace.connect()
    session.sql("SELECT 1 AS one").numpy()
    process = session._worker._process
    if is_killed:
        process.kill()
        process.wait()
        # Another one is started.
        session.sql("SELECT 1 AS one").numpy()
        process = session._worker._process
    pid = process.pid
    session._worker.itself = session._worker
    del session, process
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


def state(session, id: str) -> str:
    return next(found.state for found in session.queries() if found.id == id)


def test_an_answer_that_nobody_has_any_more_is_not_made(session, query_program, cells):
    for is_begun in (False, True):
        endless = session.sql(ENDLESS)
        if is_begun:
            next(endless.batches())
        id = endless.id
        del endless
        assert session.sql("SELECT 1 AS one").numpy()["one"].tolist() == [1]
        assert state(session, id) == "left"


def test_an_answer_that_fails_after_rows_tells_them_first(session, query_program, cells):
    answer = session.sql("SELECT 1 / (2399 - (x * 6000 + y * 60 + z) / 100) AS q FROM cells").batches()
    with pytest.raises(terrace.TerraceError, match="[Dd]ivide by zero"):
        list(answer)
    assert session.sql("SELECT 1 AS one").numpy()["one"].tolist() == [1]


def test_a_query_is_seen_and_cancelled_while_another_thread_waits_for_its_rows(session, query_program):
    answer = session.sql(LONG)
    failures = []

    def wait():
        with pytest.raises(terrace.TerraceError) as failure:
            answer.arrow()
        failures.append(str(failure.value))

    thread = threading.Thread(target=wait)
    thread.start()
    (found,) = [query for query in session.queries() if query.state == "running"]
    assert found.id == answer.id and found.sql == LONG and found.who and answer.state.state == "running"
    assert found.elapsed.total_seconds() >= 0 and found.rows == 0 and found.error is None
    answer.cancel()
    thread.join(60)
    assert failures == ["the query was cancelled"]
    assert state(session, answer.id) == "cancelled"
    # It stays as it is.
    answer.cancel()
    with pytest.raises(terrace.NotFoundError, match="runs no more: it is cancelled"):
        session.cancel_query(answer.id)
    with pytest.raises(terrace.NotFoundError, match="no query 1-1"):
        session.cancel_query("1-1")


def test_a_query_whose_rows_nobody_asks_for_is_cancelled_too(session, query_program):
    answer = session.sql(ENDLESS)
    rows = answer.batches()
    next(rows)
    answer.cancel()
    assert state(session, answer.id) == "cancelled"
    with pytest.raises(terrace.TerraceError, match="cancelled"):
        list(rows)


def test_progress_grows_to_one_with_the_rows_that_are_read(session, query_program, cells):
    answer = session.sql("SELECT x, y, z, v, u, c FROM cells")
    told = []
    for _ in answer.batches():
        told.append(answer.progress)
    end = time.monotonic() + 60
    while answer.progress != 1.0:
        assert time.monotonic() < end
        time.sleep(0.01)
    known = [progress for progress in told if progress is not None]
    assert known == sorted(known) and all(0 <= progress <= 1 for progress in known)
    assert answer.state.rows == np.prod(SHAPE) and answer.state.state == "finished"
    assert re.fullmatch(r"\d+-\d+", answer.id)


def test_a_sessions_queries_take_what_they_may_and_spill_where_they_are_told(run, query_program, tmp_path):
    groups = "SELECT count(*), sum(n) FROM (SELECT i * 7919 % 3000017 AS k, count(*) AS n FROM generate_series(1, 3000000) t(i) GROUP BY k)"
    session = terrace.connect()
    session.limit_queries(memory="64MiB", timeout=300)
    with pytest.raises(terrace.TerraceError, match="needs more memory"):
        session.sql(groups).arrow()
    with pytest.raises(terrace.InvalidError, match="already"):
        session.limit_queries(spill=tmp_path)
    session = terrace.connect()
    session.limit_queries(memory="64MiB", spill=tmp_path)
    for same in (session, pickle.loads(pickle.dumps(session))):
        assert same.sql(groups).arrow().to_pylist() == [{"count(*)": 3000000, "sum(n)": 3000000}]
    # A directory and its lock go with the program that answers.
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"lock"}


def mapped(name: str = "memfd:terrace rows") -> int:
    """Bytes of memory of answers that this process has mapped."""
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def test_memory_of_answers_is_mapped_for_the_next_ones_and_not_after_a_fork_or_the_programs_end(run, query_program, cells):
    session = terrace.connect()
    query = "SELECT x, y, z, v FROM cells"
    first = session.sql(query).arrow()
    one = mapped()
    assert one >= first.nbytes
    del first
    # The same memory again.
    for _ in range(5):
        wanted = session.sql(query).arrow()
    assert one <= mapped() <= 2 * one + 65536
    kept = wanted.column("v").chunk(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if kept[0].as_py() == wanted.column("v")[0].as_py() else 1)
    assert os.waitpid(child, 0)[1] == 0
    del wanted
    gc.collect()
    # What is looked at alone.
    assert mapped() <= kept.nbytes + 65536
    answer = session.sql(query).arrow()
    assert mapped() > kept.nbytes + 65536
    os.kill(session._worker._process.pid, signal.SIGKILL)
    session._worker._process.wait()
    assert session.sql("SELECT 1 AS a").numpy()["a"].tolist() == [1]
    del answer
    gc.collect()
    assert mapped() <= kept.nbytes + 65536
    assert len(kept) == np.prod(SHAPE) and kept[-1].as_py() is not None
