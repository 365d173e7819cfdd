"""Dask's workers read each chunk on the host whose agent keeps it.

Two agents of one root, and a worker beside each: at two addresses of this machine, and, by the last test, which runs the others once more,
on two nodes that have memory and a network of their own (namespaces; they need root).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import HOSTS_OF_NODES, REPOSITORY, TERRACE, nodes, without_nodes

import terrace

dask = pytest.importorskip("dask")
dask_array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

import terrace.dask  # noqa: E402

#: Starts a command on the node with an address, where this file runs on nodes.
ENTER = os.environ.get("TERRACE_TEST_ENTER")
HOSTS = HOSTS_OF_NODES if ENTER else ["127.0.0.1", "127.0.0.2"]
CELLS = np.random.default_rng(17).normal(size=(512, 512))
CHUNKS = (64, 64)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:Port .* is already in use", "ignore:Sending large graph")


@pytest.fixture(scope="module")
def agents() -> Iterator[tuple[Path, dict[str, dict[str, str]]]]:
    """Two agents of one root; the root, and the environment of workers by their hosts. On nodes it says nothing of Terrace."""
    with tempfile.TemporaryDirectory(prefix="tt-dask-", dir="/tmp") as place, tempfile.TemporaryDirectory(prefix="tt-", dir="/dev/shm") as fast:
        root, hosts, runtime = Path(place, "root"), Path(place, "hosts"), Path(fast, "run")
        for directory in (root, runtime, Path(fast, "ram")):
            directory.mkdir()
        hosts.write_text("\n".join(HOSTS))
        own = ["--tier", "ram=/dev/shm:64MiB"] if ENTER else ["--runtime", runtime, "--state", place, "--tier", f"ram={fast}/ram:64MiB"]
        launcher = f"{ENTER} {{host}}" if ENTER else "env HOST={host}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
        process = subprocess.Popen(
            [TERRACE, "serve", "--quiet", "--root", root, "--hosts", hosts, "--launcher", launcher, *own],
            stdout=subprocess.PIPE, env=clean, text=True,
        )  # fmt: skip
        try:
            assert process.stdout.readline().startswith("export TERRACE_ROOT="), "the agents did not begin"
            own = {} if ENTER else {host: {"TERRACE_INDEX": str(next(runtime.glob(f"*.{n}/index")))} for n, host in enumerate(HOSTS)}
            yield root, {host: {**clean, **own.get(host, {})} for host in HOSTS}
        finally:
            terrace.dask._opened.cache_clear()
            gc.collect()
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            ended = process.wait(100)
        assert ended == 0


@pytest.fixture
def session(agents, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[terrace.Session]:
    """As a program on the first host has it."""
    root, environments = agents
    monkeypatch.setenv("TERRACE_ROOT", str(root))
    if index := environments[HOSTS[0]].get("TERRACE_INDEX"):
        monkeypatch.setenv("TERRACE_INDEX", index)
    session = terrace.connect()
    assert session.is_local and len(session.agents) == 2
    yield session
    # pytest keeps them until the next test; agents wait for programs that are connected to them.
    request.node.funcargs.clear()


@pytest.fixture
def array(session: terrace.Session, request: pytest.FixtureRequest) -> terrace.Array:
    array = session.create_array(request.node.name, CELLS.shape, chunks=CHUNKS)
    array[:] = CELLS
    return array


class Workers:
    """A scheduler with workers, which the test can kill."""

    def __init__(self, client: distributed.Client, scheduler: str, directory: Path) -> None:
        self.client, self.scheduler, self.directory = client, scheduler, directory
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, host: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.scheduler, "--host", host, "--no-nanny", "--nthreads", "2",
                   "--no-dashboard", "--local-directory", str(self.directory)]  # fmt: skip
        log = open(self.directory / f"{host}.log", "wb")
        with log:
            environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
            process = subprocess.Popen([ENTER, host, *command] if ENTER else command, env=environment, stdout=log, stderr=log)
        self.processes.append(process)
        self.client.wait_for_workers(len(self.processes), timeout=60)
        return process


@pytest.fixture
def workers(agents, tmp_path: Path) -> Iterator[Workers]:
    """One on each host. Without work stealing a task runs where it was sent: a worker that is idle takes others', wherever their chunks are."""
    settings = {"distributed.scheduler.work-stealing": False, "distributed.scheduler.no-workers-timeout": "60s"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(n_workers=0, host=HOSTS[0], dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = Workers(client, cluster.scheduler_address, tmp_path)
        try:
            for host, environment in agents[1].items():
                workers.start(host, environment)
            yield workers
        finally:
            for process in workers.processes:
                process.kill()
                process.wait()


def host_of_this_worker() -> str:
    return distributed.get_worker().address.rpartition(":")[0].rpartition("/")[2]


def hosts_that_read(x: "dask_array.Array") -> np.ndarray:
    """By each block's own task, which the read is a part of: Dask fuses them."""

    def ran(block: np.ndarray) -> np.ndarray:
        return np.full((1, 1), host_of_this_worker())

    return x.map_blocks(ran, dtype="U16", chunks=((1,) * x.numblocks[0], (1,) * x.numblocks[1])).compute()


def test_each_chunk_is_read_on_the_host_that_keeps_it(array: terrace.Array, workers: Workers) -> None:
    hosts = array.hosts()
    assert hosts.shape == (8, 8) and set(hosts.flat) == set(HOSTS)
    x = terrace.dask.from_array(array)
    assert (hosts_that_read(x) == hosts).all()
    assert (hosts_that_read(x * 2 + 1) == hosts).all(), "what is fused with a read, and its name, make no difference"
    with dask.config.set({"optimization.fuse.active": False}):
        assert (hosts_that_read(x + 1) == hosts).all()
    assert (hosts_that_read(x[64:, :320]) == hosts[1:, :5]).all()
    assert (hosts_that_read(x[3::70]) == hosts[[0, 1, 2, 3, 4, 5, 6, 7]]).all()
    np.testing.assert_array_equal(x.compute(), CELLS)
    np.testing.assert_allclose((x - x.mean(axis=0)).std(axis=1).compute(), (CELLS - CELLS.mean(axis=0)).std(axis=1))
    np.testing.assert_array_equal(x[[5, 3, 500], 7:9][::-1].compute(), CELLS[[5, 3, 500], 7:9][::-1])


def test_a_block_of_several_chunks_is_read_where_most_of_it_is(array: terrace.Array, workers: Workers) -> None:
    x = terrace.dask.from_array(array, (64, 192))
    ran = hosts_that_read(x)
    for (row, column), host in np.ndenumerate(ran):
        own = list(array.hosts()[row, 3 * column : 3 * column + 3])
        assert own.count(host) >= len(own) / 2
    y = terrace.dask.from_array(array)
    np.testing.assert_array_equal((x.rechunk(CHUNKS) + y[::-1]).compute(), CELLS + CELLS[::-1])


@pytest.mark.parametrize("by", ["root", "address"])
def test_a_worker_uses_the_agent_of_its_own_node(
    by: str, agents, array: terrace.Array, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "address":
        registered = agents[0] / ".terrace/agents"
        if fingerprint := json.loads((registered / "1").read_text())["member"]["fingerprint"]:
            monkeypatch.setenv("TERRACE_FINGERPRINT", fingerprint)
        monkeypatch.setenv("TERRACE_TOKEN_FILE", str(registered / "token"))
        array = terrace.connect(f"tcp://{array.session.agents[1]}")[array.name]
        assert not array.session.is_local

    def looked_at(array: terrace.Array) -> tuple[bool, set[str], float]:
        memory = {line.split()[-1].split("/")[-2] for line in open("/proc/self/maps") if line.endswith("/index\n")}
        return array.session.is_local, memory, float(array[7, 7])

    found = workers.client.run(looked_at, array)
    for number, host in enumerate(HOSTS):
        (answer,) = [answer for address, answer in found.items() if f"//{host}:" in address]
        is_local, memory, cell = answer
        assert is_local and {name.rpartition(".")[2] for name in memory} == {str(number)} and cell == CELLS[7, 7]


def test_results_are_stored_where_their_chunks_are_kept(array: terrace.Array, session: terrace.Session, workers: Workers) -> None:
    def number(block: np.ndarray) -> np.ndarray:
        return np.full_like(block, HOSTS.index(host_of_this_worker()))

    stored = session.create_array("stored", CELLS.shape, chunks=CHUNKS, create="replace")
    numbers = dask_array.zeros(CELLS.shape, chunks=CHUNKS).map_blocks(number, dtype="f8")
    terrace.dask.store(numbers, stored)
    assert (stored[::64, ::64] == stored.keepers()).all()
    stored[:] = -1
    terrace.dask.store(numbers[128:], stored, regions=(slice(128, None), slice(None)))
    assert (stored[:128] == -1).all() and (stored[128::64, ::64] == stored.keepers()[2:]).all()
    dask_array.store(terrace.dask.from_array(array) * 3, stored)
    np.testing.assert_array_equal(stored[:], CELLS * 3)


def test_xarray_reads_chunks_where_they_are_kept(session: terrace.Session, workers: Workers) -> None:
    xarray = pytest.importorskip("xarray")
    from terrace.zarr import TerraceStore

    field = session.create_array("fields/field", CELLS.shape, chunks=CHUNKS, dimensions=["y", "x"], create="replace")
    field[:] = CELLS
    dataset = xarray.open_zarr(TerraceStore(session, "fields"), consolidated=False)
    assert (hosts_that_read(dataset.field.data) == field.hosts()).all()
    np.testing.assert_allclose(dataset.field.isel(y=slice(3, 99)).mean("x").values, CELLS[3:99].mean(1))


def test_when_a_worker_dies_the_others_do_its_work(array: terrace.Array, workers: Workers) -> None:
    def slowly(block: np.ndarray) -> np.ndarray:
        time.sleep(0.05)
        return block

    x = terrace.dask.from_array(array)
    future = workers.client.compute(x.map_blocks(slowly, dtype=x.dtype))
    workers.client.submit(slowly, None, workers=HOSTS[1], pure=False, priority=10).result()
    workers.processes[1].kill()
    np.testing.assert_array_equal(future.result(), CELLS)
    assert (hosts_that_read(x) == HOSTS[0]).all()


def bytes_on_the_wire() -> int:
    words = next(line for line in open("/proc/self/net/dev") if "eth0" in line).split()
    return int(words[1]) + int(words[9])


@pytest.mark.skipif(not ENTER, reason="only nodes have a wire between them")
def test_cells_stay_on_their_nodes(array: terrace.Array, workers: Workers) -> None:
    x, elsewhere = terrace.dask.from_array(array), dask_array.from_array(array, array.chunks)
    crossed = {}
    for name, read in {"placed": x, "anywhere": elsewhere}.items():
        before = bytes_on_the_wire()
        assert read.sum().compute() == pytest.approx(CELLS.sum())
        crossed[name] = bytes_on_the_wire() - before
    assert crossed["placed"] < array.nbytes / 4 < crossed["anywhere"], crossed


def test_without_a_cluster_and_where_no_host_is_known(session: terrace.Session, array: terrace.Array) -> None:
    x = terrace.dask.from_array(array)
    for scheduler in ("threads", "synchronous"):
        np.testing.assert_array_equal((x + x.T).compute(scheduler=scheduler), CELLS + CELLS.T)
    np.testing.assert_array_equal(x.to_delayed()[7, 1].compute(), CELLS[448:, 64:128])
    scalar, empty, grown = (
        session.create_array(name, shape, "i4", unlimited=range(min(1, len(shape))), create="replace")
        for name, shape in {"scalar": (), "empty": (0, 3), "grown": (5, 3)}.items()
    )
    scalar[()] = 7
    terrace.dask.store(dask_array.arange(15, chunks=4).reshape(5, 3), grown, scheduler="threads")
    assert terrace.dask.from_array(scalar).compute() == 7 and terrace.dask.from_array(empty).compute().shape == (0, 3)
    assert terrace.dask.from_array(grown)[1:].sum().compute() == 105 - 3 and scalar.hosts()[()] in HOSTS


def test_all_of_this_on_two_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    if ENTER:
        pytest.skip("this is on two nodes")
    without_nodes("test_dask", capfd)
    with nodes() as enter:
        ran = subprocess.run(
            [enter, HOSTS_OF_NODES[0], sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
             "-c", "python/pyproject.toml", __file__],
            cwd=REPOSITORY, env={**os.environ, "TERRACE_TEST_ENTER": str(enter)}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
