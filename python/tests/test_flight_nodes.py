"""Flight SQL on arrays that two agents share, by TLS: what one address answers is computed on both nodes.

On two nodes that have memory and a network of their own (namespaces; they need root): the test starts the agents, and itself again on the
second node, from where it asks the first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import terrace

from conftest import HOSTS_OF_NODES, REPOSITORY, TERRACE, nodes, without_nodes
from flight_server import PROGRAM, connect

adbc = pytest.importorskip("adbc_driver_manager")

#: Where this file runs on a node: the address that answers, its certificate and its token.
SERVED = json.loads(os.environ.get("TERRACE_TEST_SERVED", "null"))
CELLS = np.random.default_rng(5).normal(size=(256, 40, 50))
on_a_node = pytest.mark.skipif(SERVED is None, reason="the last test runs it on a node")


@contextmanager
def connection() -> Iterator:
    known = {"adbc.flight.sql.client_option.tls_root_certs": Path(SERVED["certificate"]).read_text()}
    with connect(SERVED["location"], Path(SERVED["token"]).read_text().strip(), **known) as connection:
        yield connection


def columns(asked, query: str) -> dict[str, np.ndarray]:
    with asked.cursor() as cursor:
        cursor.execute(query)
        table = cursor.fetch_arrow_table()
    return {name: table[name].to_numpy() for name in table.column_names}


@pytest.fixture(scope="module")
def filled() -> None:
    session = terrace.connect()
    assert session.is_local and len(session.agents) == 2
    for name, cells in {"a": CELLS, "b": CELLS[::-1].round(1)}.items():
        array = session.create_array(f"run/{name}", CELLS.shape, chunks=(8, 40, 50), dimensions=["z", "y", "x"], create="replace")
        array[:] = cells
    assert set(session["run/a"].keepers().flat) == {0, 1}


@on_a_node
def test_what_is_asked_at_one_address_is_computed_on_both_nodes(filled) -> None:
    b = CELLS[::-1].round(1)
    with connection() as asked:
        found = columns(asked, "SELECT z, avg(a) AS m, min(a * b) AS p FROM run GROUP BY z ORDER BY z")
        np.testing.assert_allclose(found["m"], CELLS.mean(axis=(1, 2)))
        np.testing.assert_allclose(found["p"], (CELLS * b).min(axis=(1, 2)))
        found = columns(asked, "SELECT b AS k, count(*) AS n FROM run GROUP BY b ORDER BY b")
        np.testing.assert_array_equal(found["n"], np.unique(b + 0.0, return_counts=True)[1])
        found = columns(asked, "SELECT a FROM run ORDER BY a DESC LIMIT 9")
        np.testing.assert_array_equal(found["a"], np.sort(CELLS, axis=None)[:-10:-1])
        found = columns(asked, "SELECT z, y, x, a FROM run WHERE a > 3 ORDER BY z, y, x")
        np.testing.assert_array_equal([found["z"], found["y"], found["x"]], np.nonzero(CELLS > 3))
        np.testing.assert_array_equal(found["a"], CELLS[CELLS > 3])
        plan = "\n".join(map(str, columns(asked, "EXPLAIN SELECT z, avg(a) FROM run GROUP BY z")["plan"]))
        assert all(host in plan for host in HOSTS_OF_NODES), plan
        with asked.cursor() as cursor:
            cursor.execute("SELECT sum(a) AS s FROM run WHERE z < ?", [7])
            assert cursor.fetchone()[0] == pytest.approx(CELLS[:7].sum())
        with pytest.raises(adbc.Error, match="no_such"):
            columns(asked, "SELECT no_such FROM run")


@on_a_node
def test_a_query_that_is_cancelled_runs_on_no_node(filled) -> None:
    long = "SELECT count(*) AS n FROM run l JOIN run r ON l.a * r.a > l.b + r.b + 1000"
    runs = "SELECT count(*) AS n FROM terrace.queries WHERE state = 'running' AND sql NOT LIKE '%terrace.queries%'"
    here = terrace.connect()
    ran_here = 0
    with connection() as asked, connection() as other, asked.cursor() as cursor:
        is_over = threading.Event()

        def cancel() -> None:
            nonlocal ran_here
            begun = time.monotonic()
            while ran_here == 0 and time.monotonic() < begun + 20 and not is_over.wait(0.05):
                ran_here = here.sql(runs).arrow()["n"][0].as_py()
            while not is_over.wait(0.1):
                cursor.adbc_cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(Exception, match="(?i)cancel"):
            cursor.execute(long)
            cursor.fetchall()
        is_over.set()
        thread.join()
        assert ran_here > 0, "no part of it ran on this node"
        end = time.monotonic() + 20
        while columns(other, runs)["n"][0] + here.sql(runs).arrow()["n"][0].as_py() > 0:
            assert time.monotonic() < end, "it runs on"
            time.sleep(0.1)
        assert columns(other, "SELECT count(*) AS n FROM run")["n"][0] == CELLS.size


@on_a_node
def test_what_a_query_that_failed_had_connected_is_there_for_the_next_one(filled) -> None:
    with connection() as asked:
        for _ in range(3):
            with pytest.raises(adbc.Error):
                columns(asked, "SELECT CAST(a * 1000 AS TINYINT) AS t FROM run")
            found = columns(asked, "SELECT z, avg(a) AS m FROM run GROUP BY z ORDER BY z")
            np.testing.assert_allclose(found["m"], CELLS.mean(axis=(1, 2)))


def test_all_of_this_on_two_nodes(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if SERVED:
        pytest.skip("this is on a node")
    without_nodes("test_flight_nodes", capfd)
    root, hosts, token = tmp_path / "root", tmp_path / "hosts", tmp_path / "token"
    root.mkdir()
    hosts.write_text("\n".join(HOSTS_OF_NODES))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
    with nodes() as enter:
        serve = [enter, HOSTS_OF_NODES[0], TERRACE, "serve", "--quiet", "--root", root, "--hosts", hosts, "--launcher", f"{enter} {{host}}",
                 "--tier", "ram=/dev/shm:64MiB", "--flight", f"{HOSTS_OF_NODES[0]}:0", "--tls", "--token-file", token]  # fmt: skip
        process = subprocess.Popen(serve, env=clean, stdout=subprocess.PIPE, text=True)
        try:
            told = {}
            while "TERRACE_FLIGHT" not in told:
                line = process.stdout.readline()
                assert line, "the agents did not begin"
                told.update([line.strip().removeprefix("export ").split("=", 1)])
            assert told["TERRACE_FLIGHT"].startswith(f"grpc+tls://{HOSTS_OF_NODES[0]}:")
            served = {"location": told["TERRACE_FLIGHT"], "certificate": f"{token}.certificate", "token": str(token)}
            ran = subprocess.run(
                [enter, HOSTS_OF_NODES[1], sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
                 "-c", "python/pyproject.toml", __file__],
                cwd=REPOSITORY,
                env={**clean, "TERRACE_ROOT": str(root), "TERRACE_QUERY": str(PROGRAM), "TERRACE_TEST_SERVED": json.dumps(served)},
                capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert "3 passed" in ran.stdout, ran.stdout
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            ended = process.wait(100)
    assert ended == 0
