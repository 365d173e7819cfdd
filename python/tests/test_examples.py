"""The examples run under `terrace run`, and check their own results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, TERRACE

EXAMPLES = sorted((REPOSITORY / "examples").glob("python-*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_finds_what_it_expects(example: Path, run) -> None:
    ran = subprocess.run(
        [TERRACE, "run", "--quiet", "--config", run.config, "--", sys.executable, example],
        env={key: value for key, value in run.environment.items() if not key.startswith("TERRACE_")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.strip(), "an example says what it found"


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"python-xarray", "python-halo", "python-particles"}
