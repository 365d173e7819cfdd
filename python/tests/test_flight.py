"""Flight SQL with the ADBC driver as it comes from PyPI, and with plain Flight messages."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import terrace

from conftest import TERRACE
from flight_server import TOKEN, FlightServer, connect

pyarrow = pytest.importorskip("pyarrow")
adbc = pytest.importorskip("adbc_driver_manager")


@pytest.fixture(scope="module")
def server(run) -> Iterator[FlightServer]:
    container = terrace.connect().create_container("flights")
    container.create_array("v", (4, 3), dimensions=["x", "y"])[...] = np.arange(12.0).reshape(4, 3)
    with FlightServer(run.environment, "--memory", "64MiB") as server:
        yield server


def rows(connection, query: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def test_queries_are_answered_with_the_token_alone(server):
    with server.connect() as connection:
        assert rows(connection, "SELECT x, sum(v) AS s FROM flights GROUP BY x ORDER BY x") == [(0, 3), (1, 12), (2, 21), (3, 30)]
        assert rows(connection, "SELECT count(*) FROM terrace.arrays WHERE path = 'flights/v'") == [(1,)]
    # As a password, which the driver exchanges for the token.
    for name in ("fo", "foo", "fooo"):  # of each length by 3: Go's driver leaves out base64's padding
        with connect(server.location, None, username=name, password=TOKEN) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1 AS one")
            assert cursor.fetchall() == [(1,)]
    with connect(server.location, None, username="anybody", password=TOKEN) as connection:
        assert rows(connection, "SELECT 1 AS one") == [(1,)]
    for wrong in (None, "another-token-of-the-same-lengthx", TOKEN[:-1], TOKEN + "x"):
        with pytest.raises(adbc.Error, match="(?i)token|unauth") as refused, connect(server.location, wrong) as connection:
            rows(connection, "SELECT 1")
        assert "UNAUTHENTICATED" in str(refused.value).upper()
    with pytest.raises(adbc.Error, match="(?i)token|unauth"):
        with connect(server.location, None, username="anybody", password="guess") as connection:
            rows(connection, "SELECT 1")


def test_plain_calls_without_the_token_are_refused(server):
    flight = pytest.importorskip("pyarrow.flight")
    client = flight.FlightClient(server.location)
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(flight.Ticket(b"")).read_all()
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.get_flight_info(flight.FlightDescriptor.for_command(b""))
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action("CreatePreparedStatement", b"")))
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.list_actions())


def test_parameters_take_one_row_of_values(server):
    with server.connect() as connection, connection.cursor() as cursor:
        query = "SELECT x, v FROM flights WHERE x >= ? AND v < ? ORDER BY v"
        for values, wanted in [((2, 9.5), [(2, 6), (2, 7), (2, 8), (3, 9)]), ((3, 10), [(3, 9)]), ((4, 99), [])]:
            cursor.execute(query, values)
            assert cursor.fetchall() == wanted
        cursor.execute("SELECT concat($2, $1) AS t", ("b", "it's '?'; "))
        assert cursor.fetchall() == [("it's '?'; b",)]
        cursor.execute("SELECT CAST(? AS DOUBLE) AS d, x FROM flights ORDER BY v LIMIT ?", (0.5, 2))
        assert cursor.fetchall() == [(0.5, 0), (0.5, 0)]
        with pytest.raises(adbc.Error, match="has no value"):
            cursor.execute(query)
            cursor.fetchall()
        assert rows(connection, "SELECT 1 AS one") == [(1,)]


def test_tables_and_their_columns_are_told(server):
    with server.connect() as connection:
        assert "TABLE" in connection.adbc_get_table_types()
        assert connection.adbc_get_table_schema("flights").names == ["x", "y", "v"]
        objects = connection.adbc_get_objects(depth="tables", db_schema_filter="root").read_all().to_pylist()
        tables = [table["table_name"] for catalog in objects for schema in catalog["catalog_db_schemas"] for table in schema["db_schema_tables"]]
        assert "flights" in tables
        assert connection.adbc_get_info()["vendor_name"] == "Terrace"


def test_what_is_wrong_is_told_and_the_next_query_is_answered(server):
    with server.connect() as connection:
        for query, said in [
            ("SELECT q FROM flights", "q"),
            ("SELECT * FROM nothing", "nothing"),
            ("DROP TABLE flights", "not supported"),
            ("SELECT 1 / (CAST(v AS BIGINT) - 7) FROM flights", "(?i)divide by zero"),
            ("SELECT a.v FROM generate_series(1, 50000000) a(v) ORDER BY a.v % 7919", "memory"),
        ]:
            with pytest.raises(adbc.Error, match=said):
                rows(connection, query)
            assert rows(connection, "SELECT 1 AS one") == [(1,)]


def test_constants_have_the_schema_that_was_told(server):
    asked = {
        "sqrt(4.0)": 2, "power(2, -1)": 0.5, "abs(-3)": 3, "upper('a')": "A", "greatest(1, 2)": 2, "CASE WHEN true THEN 1 END": 1,
        "NULL": None, "x + 1": 1, "coalesce(x, 1)": 0,
    }
    with server.connect() as connection:
        for expression, value in asked.items():
            assert rows(connection, f"SELECT x, {expression} AS k FROM flights ORDER BY x, y LIMIT 1") == [(0, value)], expression
        assert rows(connection, "SELECT pi() > 3 AS k, sum(v) AS s FROM flights WHERE x < 0") == [(True, None)]


def test_statements_of_any_length_are_refused_and_the_server_lives(server):
    with server.connect() as connection:
        for query in [
            "SELECT " + "+".join(["1"] * 20000),
            "SELECT * FROM flights WHERE " + " OR ".join(f"x={i}" for i in range(8000)),
            "SELECT 1" + " UNION ALL SELECT 1" * 4000,
            "SELECT " + "-" * 1 + " -" * 3000 + " 1",
        ]:
            with pytest.raises(adbc.Error, match="nested"):
                rows(connection, query)
        assert rows(connection, "SELECT count(*) FROM flights WHERE " + " OR ".join(f"v + x = {i}" for i in range(450))) == [(12,)]
    assert server.process.poll() is None


def test_a_query_that_takes_long_keeps_nobody_waiting(server):
    # Computed while it is planned, on one thread, without an end that is near.
    slow = "SELECT length(repeat(repeat('a', 1000000), 300)) AS n"
    with ThreadPoolExecutor() as pool, server.connect() as connection:
        def ask() -> list[tuple]:
            with server.connect() as own:
                return rows(own, slow)

        asked = [pool.submit(ask) for _ in range(3)]
        for _ in range(10):
            begun = time.monotonic()
            with server.connect() as other:
                assert rows(other, "SELECT max(v) FROM flights") == [(11,)]
            assert time.monotonic() - begun < 5
        assert [answer.result() for answer in asked] == [[(300000000,)]] * 3


# Its driver can't close what a server that has ended had open: in a process of its own.
ASK_FOR_LONG = """
import sys
from flight_server import connect
with connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT sum(a.value % 7) AS s FROM generate_series(1, 1000000000000) a")
    cursor.fetchall()
"""


def test_the_server_ends_though_a_query_does_not(run):
    with FlightServer(run.environment) as server:
        def computed() -> int:
            return int(Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11])

        idle = computed()
        command = [sys.executable, "-c", ASK_FOR_LONG, server.location]
        client = subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.PIPE, text=True)
        while computed() < idle + 20 and client.poll() is None:
            time.sleep(0.05)
        server.process.terminate()
        # The query would take for hours.
        assert server.process.wait(60) == 0
        told = client.communicate(timeout=60)[1]
        assert client.returncode != 0 and "adbc" in told, told


def test_a_large_answer_streams(server, session):
    container = session.create_container("wide")
    values = np.random.default_rng(1).random((50, 100, 100))
    container.create_array("v", values.shape, dimensions=["x", "y", "z"])[...] = values
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT x, y, z, v FROM wide")
        reader = cursor.fetch_record_batch()
        batches = list(reader)
    assert len(batches) > 5
    table = pyarrow.Table.from_batches(batches).sort_by([("x", "ascending"), ("y", "ascending"), ("z", "ascending")])
    assert table["v"].to_numpy().tobytes() == values.tobytes()


def test_messages_that_make_no_sense_are_refused_and_the_server_lives(server):
    flight = pytest.importorskip("pyarrow.flight")
    client = flight.FlightClient(server.location)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())], timeout=30)
    chance = random.Random(5)
    with server.connect() as connection, connection.cursor() as cursor:
        # A ticket of the server's own, to be damaged.
        good = cursor.adbc_execute_partitions("SELECT x, v FROM flights")[0][0]
    answered = refused = 0
    for _ in range(300):
        message = bytearray(good if chance.random() < 0.7 else chance.randbytes(chance.randrange(80)))
        for _ in range(chance.randrange(4)):
            if message:
                message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
        try:
            match chance.randrange(3):
                case 0:
                    client.do_get(flight.Ticket(bytes(message)), options).read_all()
                case 1:
                    client.get_flight_info(flight.FlightDescriptor.for_command(bytes(message)), options)
                case _:
                    list(client.do_action(flight.Action("CreatePreparedStatement", bytes(message)), options))
            answered += 1
        except (pyarrow.ArrowException, pyarrow.ArrowInvalid, OSError):
            refused += 1
    assert refused > 50, (answered, refused)
    assert server.process.poll() is None
    with server.connect() as connection:
        assert rows(connection, "SELECT max(v) FROM flights") == [(11,)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, str, Path]]:
    """`terrace serve --flight`, by TLS."""
    root, tier, runtime = tmp_path / "root", Path(f"/dev/shm/tt-flight-{os.getpid()}"), tmp_path / "run"
    for path in (root, tier, runtime, tmp_path / "spill"):
        path.mkdir()
    token = tmp_path / "token"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
    command = [TERRACE, "serve", "--quiet", "--root", root, "--tier", f"ram={tier}:64MiB", "--state", tmp_path / "state",
               "--runtime", runtime, "--flight", "127.0.0.1:0", "--tls", "--token-file", token,
               "--query-memory", "64MiB", "--query-spill", tmp_path / "spill"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    told = dict(process.stdout.readline().strip().removeprefix("export ").split("=", 1) for _ in range(2))
    os.environ["TERRACE_INDEX"], before = told["TERRACE_INDEX"], os.environ.get("TERRACE_INDEX")
    yield process, told["TERRACE_FLIGHT"], token
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stdout.close()
    if before is None:
        del os.environ["TERRACE_INDEX"]
    else:
        os.environ["TERRACE_INDEX"] = before
    subprocess.run(["rm", "-rf", tier], check=True)


def test_serve_answers_by_tls_and_starts_it_again_when_it_dies(served):
    process, location, token = served
    assert location.startswith("grpc+tls://")
    session = terrace.connect()
    session.create_container("c").create_array("v", (6,), dimensions=["x"])[...] = np.arange(6.0)
    secret = token.read_text().strip()
    certificate = token.with_name("token.certificate").read_text()
    known = {"adbc.flight.sql.client_option.tls_root_certs": certificate}
    groups = "SELECT count(*), sum(n) FROM (SELECT i * 7919 % 3000017 AS k, count(*) AS n FROM generate_series(1, 3000000) t(i) GROUP BY k)"
    with connect(location, secret, **known) as connection:
        assert rows(connection, "SELECT sum(v) FROM c") == [(15,)]
        # Beyond the memory that it may have.
        assert rows(connection, groups) == [(3000000, 3000000)]
    # Neither an unknown certificate nor a connection without TLS.
    with pytest.raises(adbc.Error), connect(location, secret) as connection:
        rows(connection, "SELECT 1")
    with pytest.raises(adbc.Error), connect(location.replace("grpc+tls", "grpc+tcp"), secret) as connection:
        rows(connection, "SELECT 1")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    answering = [int(child) for child in children if "terrace-query" in Path(f"/proc/{child}/cmdline").read_text()]
    assert len(answering) == 1
    os.kill(answering[0], signal.SIGKILL)
    end = time.monotonic() + 30
    while True:
        try:
            with connect(location, secret, **known) as connection:
                assert rows(connection, "SELECT sum(v) FROM c") == [(15,)]
                return
        except adbc.Error:
            assert time.monotonic() < end, "it is not started again"
            time.sleep(0.1)
