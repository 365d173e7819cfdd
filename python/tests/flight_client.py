"""A program of several Flight SQL clients for `test_flight_many`: asks queries whose answers it knows, until it is killed or told to end.

Usage: flight_client.py LOCATION SEED CLIENTS SHAPE. Its standard input's end is its own; it says `N answers` then, or what was wrong.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import threading
import time

import numpy as np
from flight_server import connect

location, seed, clients, shape = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
fixed = np.arange(np.prod(shape), dtype="f8").reshape(shape)
MAY_END = "/* may end */"
LONG = f"SELECT count(*) {MAY_END} FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i + j < 0"
is_over = threading.Event()
answers = [0] * clients
#: What each client does, and since when.
doing = [("connects", 0.0)] * clients
wrong: list[str] = []


def ask(cursor, query: str) -> dict[str, np.ndarray]:
    cursor.execute(query)
    table = cursor.fetch_arrow_table()
    return {name: table[name].to_numpy() for name in table.column_names}


def sorted_by(columns: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    order = np.lexsort([columns[name] for name in reversed(names)])
    return {name: values[order] for name, values in columns.items()}


def complete_steps(cursor, chance: random.Random) -> None:
    found = ask(cursor, "SELECT count(*) AS n, min(q - 2 * p) AS low, max(q - 2 * p) AS high, max(time) AS last FROM sim")
    assert found["n"][0] == (found["last"][0] + 1) * 1000 and found["low"][0] == found["high"][0] == 0, found


def column(cursor, chance: random.Random) -> None:
    found = sorted_by(ask(cursor, "SELECT x, y, v FROM fixed"), "x", "y")
    np.testing.assert_array_equal(found["v"], fixed.reshape(-1))


def groups(cursor, chance: random.Random) -> None:
    found = sorted_by(ask(cursor, "SELECT x, avg(v) AS m, max(v) AS h FROM fixed GROUP BY x"), "x")
    np.testing.assert_allclose(found["m"], fixed.mean(axis=1))
    np.testing.assert_array_equal(found["h"], fixed.max(axis=1))


def values(cursor, chance: random.Random) -> None:
    by = chance.randint(2, 9000)
    found = sorted_by(ask(cursor, f"SELECT CAST(v AS BIGINT) % {by} AS k, count(*) AS n FROM fixed GROUP BY k"), "k")
    np.testing.assert_array_equal(found["n"], np.unique(fixed % by, return_counts=True)[1])


def top(cursor, chance: random.Random) -> None:
    count = chance.randint(1, 20)
    found = ask(cursor, f"SELECT v FROM fixed WHERE v < 5000 ORDER BY v DESC LIMIT {count}")
    np.testing.assert_array_equal(found["v"], np.arange(4999, 4999 - count, -1))


def join(cursor, chance: random.Random) -> None:
    found = ask(cursor, "SELECT count(*) AS n, sum(a.v) AS s FROM fixed a JOIN fixed b ON a.v = b.v + 1")
    assert found["n"][0] == fixed.size - 1 and found["s"][0] == fixed[:].sum(), found


def middle(cursor, chance: random.Random) -> None:
    found = sorted_by(ask(cursor, "SELECT y, median(v) AS m FROM fixed GROUP BY y"), "y")
    np.testing.assert_array_equal(found["m"], np.median(fixed, axis=0))


def cancelled(cursor, chance: random.Random) -> None:
    """By its own client, or by whoever cancels queries that may end."""
    has_ended = threading.Event()

    def cancel() -> None:
        pause = chance.uniform(0.01, 0.3)
        # More than once: on a busy machine it may not have been asked yet, and then nothing is cancelled.
        while not has_ended.wait(pause):
            cursor.adbc_cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        found = ask(cursor, LONG)
    except Exception as error:
        assert "cancel" in str(error).lower(), error
    else:
        raise AssertionError(f"a query that takes for hours is answered: {found}")
    finally:
        has_ended.set()
        thread.join()


def client(number: int) -> None:
    chance = random.Random(seed * 1000 + number)
    kinds = [complete_steps, column, groups, values, top, join, middle, cancelled]
    while not is_over.is_set():
        doing[number] = "connects", time.monotonic()
        try:
            with connect(location) as connection, connection.cursor() as cursor:
                for _ in range(10):
                    kind = chance.choice(kinds)
                    if is_over.is_set():
                        break
                    doing[number] = kind.__name__, time.monotonic()
                    try:
                        kind(cursor, chance)
                    except BaseException as error:
                        raise AssertionError(f"{kind.__name__}: {type(error).__name__} {error}") from error
                    answers[number] += 1
                doing[number] = "leaves", time.monotonic()
        except BaseException as error:
            wrong.append(str(error))
            return


threads = [threading.Thread(target=client, args=[number], daemon=True) for number in range(clients)]
for thread in threads:
    thread.start()
sys.stdin.read()
is_over.set()
end = time.monotonic() + 120
for number, thread in enumerate(threads):
    thread.join(max(0, end - time.monotonic()))
    if thread.is_alive():
        what, since = doing[number]
        wrong.append(f"client {number} got no answer for two minutes: it {what} for {time.monotonic() - since:.0f} s")
if any(thread.is_alive() for thread in threads):
    faulthandler.dump_traceback(file=sys.stdout)
for text in wrong:
    print("wrong:", text, flush=True)
print(sum(answers), "answers", flush=True)
