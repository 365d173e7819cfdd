"""Queries of Flight SQL's clients: they end with whoever asked them, and leave others their turn."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flight_server import TOKEN, FlightServer

pyarrow = pytest.importorskip("pyarrow")
adbc = pytest.importorskip("adbc_driver_manager")

NESTED_LOOPS = "SELECT count(*) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i + j < 0"
SORT = "SELECT i * j AS k FROM generate_series(1, 3000000) a(i), generate_series(1, 3000000) b(j) ORDER BY k LIMIT 3"
JOIN = "SELECT sum(i * j) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i % 2 = j % 2"


@pytest.fixture(scope="module")
def server(run) -> Iterator[FlightServer]:
    # One thread for each query, so that one is enough to take all that there would be.
    with FlightServer(run.environment, "--threads", "1", "--memory", "256MiB", "--query-memory", "64MiB") as server:
        yield server


def rows(server: FlightServer, query: str) -> list[tuple]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def listed(server: FlightServer, columns: str, condition: str) -> list[tuple]:
    return rows(server, f"SELECT {columns} FROM terrace.queries WHERE sql NOT LIKE '%terrace.queries%' AND {condition}")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def is_idle(server: FlightServer) -> bool:
    """Whether the server computes nothing for a while."""

    def computed() -> int:
        return sum(map(int, Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))

    before = computed()
    time.sleep(0.3)
    return computed() - before <= 3


class Asked:
    """A query that a thread waits for."""

    def __init__(self, server: FlightServer, query: str) -> None:
        self.connection = server.connect()
        self.cursor = self.connection.cursor()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._ask, args=[query])
        self.thread.start()

    def _ask(self, query: str) -> None:
        try:
            self.cursor.execute(query)
            self.cursor.fetch_arrow_table()
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.cursor.close()
        self.connection.close()
        return self.error


def running(server: FlightServer) -> str:
    wait_until(lambda: len(listed(server, "id", "state = 'running'")) == 1, "no query runs")
    return listed(server, "id", "state = 'running'")[0][0]


def has_ended(server: FlightServer, id: str, state: str) -> None:
    wait_until(lambda: listed(server, "state", f"id = '{id}'") == [(state,)], f"{id} is not {state}")
    wait_until(lambda: is_idle(server), "something is still computed")


@pytest.mark.parametrize("query", [NESTED_LOOPS, SORT, JOIN], ids=["nested-loops", "sort", "join"])
def test_a_query_that_its_client_cancels_is_computed_no_further(server, query):
    asked = Asked(server, query)
    id = running(server)
    asked.cursor.adbc_cancel()
    assert "CANCELLED" in str(asked.ended()).upper()
    has_ended(server, id, "left")


ASK = """
import sys
from flight_server import connect
with connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute(sys.argv[2])
    cursor.fetchall()
"""


def test_a_query_ends_with_the_client_that_is_killed(server):
    client = subprocess.Popen([sys.executable, "-c", ASK, server.location, NESTED_LOOPS], cwd=Path(__file__).parent)
    id = running(server)
    client.kill()
    client.wait()
    has_ended(server, id, "left")


def test_a_short_query_has_its_turn_beside_a_long_one(server):
    asked = Asked(server, NESTED_LOOPS)
    id = running(server)
    # Of the same process, with one thread for each query.
    assert rows(server, "SELECT sum(i) FROM generate_series(1, 1000) t(i)") == [(500500,)]
    assert listed(server, "state", f"id = '{id}'") == [("running",)]
    asked.cursor.adbc_cancel()
    asked.ended()
    has_ended(server, id, "left")


def threads_of_queries(server: FlightServer) -> list[int]:
    """How much they leave to others: 0 is as all, 10 to all others."""
    found = []
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            name, rest = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has ended
            continue
        if name == "query":
            found.append(int(rest.split()[16]))
    return found


def test_threads_of_long_queries_leave_the_processors_to_those_of_short_ones(server):
    all_asked = [Asked(server, NESTED_LOOPS) for _ in range(4)]
    wait_until(lambda: sum(nice == 10 for nice in threads_of_queries(server)) >= 4, "no query is taken to be a long one")
    assert rows(server, "SELECT sum(i) FROM generate_series(1, 1000) t(i)") == [(500500,)]
    assert threads_of_queries(server).count(0) >= 1
    assert len(listed(server, "id", "state = 'running'")) == 4
    for asked in all_asked:
        asked.cursor.adbc_cancel()
        asked.ended()
    wait_until(lambda: set(threads_of_queries(server)) == {0}, "threads of a long query are kept for others")
    wait_until(lambda: is_idle(server), "something is still computed")


REDEEM = """
import sys
from pyarrow import flight
location, token, ticket = sys.argv[1:]
options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
try:
    flight.FlightClient(location).do_get(flight.Ticket(bytes.fromhex(ticket)), options).read_all()
except BaseException as error:
    sys.exit(f"{type(error).__name__} {error}")
"""


def varint(number: int) -> bytes:
    low = bytes([number & 0x7F | (0x80 if number > 0x7F else 0)])
    return low + (varint(number >> 7) if number > 0x7F else b"")


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_ticket_cancels_what_was_asked_by_it(server, action):
    flight = pytest.importorskip("pyarrow.flight")
    client = flight.FlightClient(server.location)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())], timeout=60)

    def any_of(name: str, inner: bytes) -> bytes:
        url = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
        return b"\x0a" + varint(len(url)) + url + b"\x12" + varint(len(inner)) + inner

    def field(content: bytes) -> bytes:
        return b"\x0a" + varint(len(content)) + content

    statement = any_of("CommandStatementQuery", field(NESTED_LOOPS.encode()))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(statement), options)
    message = field(info.serialize())
    if action == "CancelQuery":
        message = any_of("ActionCancelQueryRequest", message)
    # Nothing runs by it yet.
    with pytest.raises(pyarrow.ArrowKeyError, match="no query runs"):
        list(client.do_action(flight.Action(action, message), options))
    # By a process of its own: pyarrow tells a cancelled call as an interrupt, of the main thread.
    command = [sys.executable, "-c", REDEEM, server.location, TOKEN, info.endpoints[0].ticket.ticket.hex()]
    asked = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    id = running(server)
    (result,) = client.do_action(flight.Action(action, message), options)
    assert result.body.to_pybytes().endswith(b"\x08\x01")  # its first field is 1: cancelled
    told = asked.communicate(timeout=60)[1]
    assert asked.returncode != 0 and any(word in told for word in ("KeyboardInterrupt", "cancelled")), told
    has_ended(server, id, "cancelled")
    assert action in {found.type for found in client.list_actions(options)}


def test_one_query_has_no_more_memory_than_it_may_and_others_have_theirs(server):
    many = "SELECT count(*) FROM (SELECT i FROM generate_series(1, 30000000) t(i) ORDER BY -i LIMIT 20000000)"
    with pytest.raises(adbc.Error, match="one query holds"):
        rows(server, many)
    assert rows(server, "SELECT i FROM generate_series(1, 1000000) t(i) ORDER BY -i LIMIT 1") == [(1000000,)]
    ((peak,),) = listed(server, "memory_bytes_peak", "state = 'failed'")
    assert 1 << 20 < peak <= 64 << 20


@pytest.mark.parametrize("query", ["SELECT CAST(i AS TINYINT) FROM generate_series(1, 300) a(i)", "SELECT 1 / (i - 7) FROM generate_series(1, 30) a(i)"])
def test_a_query_that_fails_while_it_runs_is_told_as_what_it_is(server, query):
    told = str(Asked(server, query).ended())
    assert told and "CANCEL" not in told.upper() and "INVALID" in told.upper(), told
