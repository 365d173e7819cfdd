"""A root with a fast tier and an agent for the tests: `terrace run` around a shell that waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import terrace

REPOSITORY = Path(__file__).resolve().parents[2]
TERRACE = Path(os.environ.get("TERRACE", REPOSITORY / "target/release/terrace"))
HOSTS_OF_NODES = ["10.77.0.1", "10.77.0.2"]


@dataclass
class Run:
    """A run that lasts as long as a test module, or as its `end` is not called."""

    root: Path
    config: Path
    scratch: Path
    index: str
    environment: dict[str, str]
    process: subprocess.Popen[str]

    def end(self) -> None:
        """Ends the run; what is in the tiers becomes durable."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.stdout.close()
            assert self.process.wait(120) == 0, "the run's end did not make all durable"


def begin(directory: Path, fast: Path, capacity: str = "256MiB") -> Run:
    root, tier, scratch = directory / "root", fast / "ram", directory / "scratch"
    for path in (root, tier, scratch, directory / "state", fast / "run"):
        path.mkdir()
    config = directory / "terrace.toml"
    config.write_text(
        f'root = "{root}"\nstate = "{directory}/state"\nruntime = "{fast}/run"\n'
        f'[[tier]]\nname = "ram"\npath = "{tier}"\ncapacity = "{capacity}"\n'
        f'[mover]\nsettle = "20ms"\n'
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
    process = subprocess.Popen(
        [TERRACE, "run", "--quiet", "--config", config, "--", "sh", "-c", "echo $TERRACE_INDEX; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    index = process.stdout.readline().strip()
    assert index, "the run did not begin"
    return Run(root, config, scratch, index, {**environment, "TERRACE_INDEX": index}, process)


@contextmanager
def served(run: Run, *flags: str) -> Iterator[dict[str, str]]:
    """`terrace web` of the run; gives what it says of itself: page, zarr, fingerprint. The token is in run.scratch/web.token."""
    token = run.scratch / "web.token"
    process = subprocess.Popen(
        [TERRACE, "web", "--config", run.config, "--token-file", token, *flags],
        stdout=subprocess.PIPE, env=run.environment, text=True,
    )  # fmt: skip
    try:
        said = [process.stdout.readline() for _ in range(3 if "--tls" in flags else 2)]
        assert said[0].startswith("page: "), "terrace web did not begin"
        yield {line.split()[0].rstrip(":"): line.split()[1] for line in said}
    finally:
        process.terminate()
        process.stdout.close()
        ended = process.wait(30)
    assert ended == 0


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with (
        tempfile.TemporaryDirectory(prefix="tt-", dir="/var/tmp") as durable,
        tempfile.TemporaryDirectory(prefix="tt-", dir="/dev/shm") as fast,
    ):
        run = begin(Path(durable), Path(fast))
        before = os.environ.get("TERRACE_INDEX")
        os.environ["TERRACE_INDEX"] = run.index
        yield run
        if before is None:
            del os.environ["TERRACE_INDEX"]
        else:
            os.environ["TERRACE_INDEX"] = before
        run.end()


@pytest.fixture
def query_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that answers `session.sql` lies where it was built."""
    monkeypatch.setenv("TERRACE_QUERY", os.environ.get("TERRACE_QUERY", str(REPOSITORY / "target/release/terrace-query")))


@pytest.fixture
def session(run: Run) -> terrace.Session:
    return terrace.connect()


@pytest.fixture
def place(session: terrace.Session, request: pytest.FixtureRequest) -> Iterator[terrace.Container]:
    """A container of the test's own."""
    name = request.node.name.translate(str.maketrans("[]/", "___"))
    container = session.create_container(name)
    yield container
    session.remove(name, recursive=True)


def without_nodes(module: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Skips, loudly, where `nodes` can't be had."""
    needed = "mount -t tmpfs none /dev/shm && ip link add wire type bridge && command -v nsenter"
    if not shutil.which("unshare") or subprocess.run(["unshare", "-mnu", "sh", "-c", needed], capture_output=True).returncode != 0:
        with capfd.disabled():
            print(f"SKIPPED: python::{module}: two nodes need root, the right to make namespaces, and ip(8)", file=sys.stderr)
        pytest.skip("no namespaces")


@contextmanager
def nodes() -> Iterator[Path]:
    """Nodes that share this machine's files, but not /dev/shm, /var/tmp and the network; a bridge connects them. Gives the command that
    enters one, by its address."""
    with tempfile.TemporaryDirectory(prefix="tt-nodes-", dir="/tmp") as place, ExitStack() as processes:

        def space(kinds: str, script: str) -> str:
            whole = f"{script}; echo ready; exec sleep 100000"
            process = subprocess.Popen(["unshare", kinds, "sh", "-euc", whole], stdout=subprocess.PIPE, text=True)
            processes.callback(lambda: (process.kill(), process.wait(), process.stdout.close()))
            assert process.stdout.readline() == "ready\n", script
            return str(process.pid)

        def enter(pid: str, script: str) -> None:
            subprocess.run(["nsenter", "-t", pid, "-n", "sh", "-euc", script], check=True)

        wire = space("-n", "ip link add wire type bridge; ip link set wire up")
        for address in HOSTS_OF_NODES:
            port = f"node{address[-1]}"
            node = space("-mnu", f"hostname {port}; mount -t tmpfs none /dev/shm; mount -t tmpfs none /var/tmp")
            enter(wire, f"ip link add {port} type veth peer name eth0 netns {node}; ip link set {port} master wire up")
            enter(node, f"ip link set lo up; ip addr add {address}/24 dev eth0; ip link set eth0 up")
            Path(place, address).write_text(node)
        command = Path(place, "enter")
        command.write_text(f'#!/bin/sh\nnode=$(cat {place}/$1); shift\nexec nsenter -t $node -m -n -u "--wdns=$PWD" -- "$@"\n')
        command.chmod(0o755)
        yield command
