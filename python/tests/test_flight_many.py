"""Many Flight SQL clients at once, while a simulation writes, clients are killed and queries are cancelled.

Short by default; `TERRACE_FLIGHT_SECONDS=600 TERRACE_FLIGHT_CLIENTS=64` is the long form.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import terrace
from flight_server import FlightServer

pytest.importorskip("pyarrow")
pytest.importorskip("adbc_driver_flightsql")

SECONDS = float(os.environ.get("TERRACE_FLIGHT_SECONDS", "8"))
CLIENTS = int(os.environ.get("TERRACE_FLIGHT_CLIENTS", "8"))
#: Between two steps of the simulation: a longer run has as many, for who asks for all of them takes as long as there are.
PAUSE = max(0.02, SECONDS / 5000)
#: Of one program, which is killed with all of them.
CLIENTS_OF_PROGRAM = 4
SHAPE = (200, 150)
#: In the text of queries that anybody may cancel.
MAY_END = "/* may end */"
HERE = Path(__file__).parent

SIMULATION = """
import numpy, select, sys, terrace
sim = terrace.connect()["sim"]
p, q = sim["p"], sim["q"]
step = 0
while not select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
    values = numpy.random.default_rng(step).random(1000)
    p[step] = values
    q[step] = 2 * values
    step += 1
print(step, "steps")
"""


class Clients:
    def __init__(self, server: FlightServer, seed: int) -> None:
        command = [sys.executable, HERE / "flight_client.py", server.location, str(seed), str(CLIENTS_OF_PROGRAM), json.dumps(SHAPE)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=HERE)

    def kill(self) -> None:
        self.process.kill()
        said = self.process.communicate()[0]
        assert "wrong" not in said, said

    def ended(self) -> int:
        said = self.process.communicate("", timeout=180)[0]
        assert "wrong" not in said and self.process.returncode == 0, said
        return int(said.split()[-2])


def memory_kib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def computed(process: int) -> int:
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))


def test_every_answer_is_right_while_clients_are_killed_and_queries_cancelled(run, tmp_path):
    session = terrace.connect()
    fixed = session.create_container("fixed").create_array("v", SHAPE, "f8", dimensions=["x", "y"])
    fixed[...] = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    sim = session.create_container("sim")
    for name in "pq":
        sim.create_array(name, (0, 1000), "f8", unlimited=[0], dimensions=["time", "cell"])
    chance = random.Random(1)
    pipe = subprocess.PIPE
    writer = subprocess.Popen([sys.executable, "-c", SIMULATION, str(PAUSE)], stdin=pipe, stdout=pipe, text=True, env=run.environment)
    flags = ["--threads", "1", "--memory", "1GiB", "--query-memory", "64MiB", "--spill", str(tmp_path)]
    with FlightServer(run.environment, *flags) as server:
        while sim["q"].shape[0] == 0:
            time.sleep(0.01)
        seed = CLIENTS // CLIENTS_OF_PROGRAM
        programs = [Clients(server, number) for number in range(seed)]
        begun, killed, cancelled, memory = time.monotonic(), 0, 0, []
        while (elapsed := time.monotonic() - begun) < SECONDS:
            time.sleep(chance.uniform(0.05, 0.5))
            memory.append((elapsed, memory_kib(server.process.pid)))
            for query in session.queries():
                if query.state == "running" and MAY_END in query.sql and chance.random() < 0.3:
                    try:
                        session.cancel_query(query.id)
                        cancelled += 1
                    except terrace.NotFoundError:  # its client was first
                        pass
            # The last one is never killed.
            if chance.random() < 0.2 and len(programs) > 1:
                programs.pop(chance.randrange(len(programs) - 1)).kill()
                seed += 1
                programs.insert(0, Clients(server, seed))
                killed += 1
        answers = [program.ended() for program in programs]
        # Nothing runs on: no query, and no processor is used.
        end = time.monotonic() + 60
        while [query for query in session.queries() if query.state == "running"]:
            assert time.monotonic() < end, "a query runs though nobody waits for it"
            time.sleep(0.05)
        while True:
            before = computed(server.process.pid)
            time.sleep(0.3)
            if computed(server.process.pid) - before <= 3:
                break
            assert time.monotonic() < end, "something is computed though nobody waits for it"
        assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"] == []
        steps = int(writer.communicate("", timeout=60)[0].split()[0])
        print(f"{CLIENTS} clients, {elapsed:.0f} s: {answers} answers, {killed} programs of {CLIENTS_OF_PROGRAM} clients killed,"
              f" {cancelled} queries cancelled, {steps} steps, MiB at the beginning, in the middle and at the end:"
              f" {[memory[place * (len(memory) - 1) // 2][1] >> 10 for place in range(3)]}")  # fmt: skip
        assert answers[-1] > 0 and steps > 0
        # Flat, where it is asked for long enough to tell: the last quarter takes no more than the second one, and what allocators keep.
        if SECONDS >= 60:
            middle = [most for at, most in memory if elapsed / 4 <= at < elapsed / 2]
            last = [most for at, most in memory if at >= elapsed * 3 / 4]
            assert statistics.median(last) <= 1.25 * statistics.median(middle) + (64 << 10)
    assert list(tmp_path.iterdir()) == []
