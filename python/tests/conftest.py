"""A root with a fast tier and an agent for the tests: `terrace run` around a shell that waits."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import terrace

REPOSITORY = Path(__file__).resolve().parents[2]
TERRACE = Path(os.environ.get("TERRACE", REPOSITORY / "target/release/terrace"))


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
