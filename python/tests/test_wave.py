"""A simulation, and two programs that read it by HTTP while it runs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, served

import terrace

EXAMPLES = REPOSITORY / "examples"

for module in ("zarr", "xarray", "dask", "aiohttp", "matplotlib"):
    pytest.importorskip(module)


def readers_environment(said: dict[str, str], run) -> dict[str, str]:
    """What a program elsewhere knows."""
    url = said["zarr"].removesuffix("/zarr/")
    return {"PATH": "/usr/bin:/bin", "HOME": str(run.scratch), "TERRACE_HTTP": url, "TERRACE_TOKEN_FILE": str(run.scratch / "web.token")}


def begin(program: list, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def test_a_wave_is_drawn_while_it_is_computed(run, tmp_path: Path) -> None:
    with served(run) as said:
        environment = readers_environment(said, run)
        picture = tmp_path / "wave.png"
        watch = begin([sys.executable, EXAMPLES / "wave-watch.py", picture], environment)
        simulate = begin([sys.executable, EXAMPLES / "wave-simulate.py", "--cells", "40", "--steps", "48"], run.environment)
        assert "48 steps of 40³ cells" in ended(simulate)
        seen = ended(watch)
        assert "48 steps; between two receivers the wave went" in seen, seen
        assert picture.read_bytes().startswith(b"\x89PNG")
        answers = ended(begin([sys.executable, EXAMPLES / "http-notebook.py"], environment))
        assert "the greatest pressure" in answers and "cells are above" in answers, answers
    terrace.connect().remove("wave", recursive=True)


def test_ranks_stage_the_same_wave_as_one_process(run) -> None:
    if importlib.util.find_spec("mpi4py") is None or not shutil.which("mpirun"):
        pytest.skip("no mpi4py or no mpirun")
    import numpy as np

    program = [sys.executable, EXAMPLES / "wave-simulate.py", "--cells", "24", "--steps", "6"]
    session = terrace.connect()
    said = ended(begin(program, run.environment))
    assert "by 1 processes" in said, said
    alone = {name: session[f"wave/{name}"][:] for name in ("pressure", "velocity_z")}
    ranks = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--quiet", "-n", "3", *program, "--mpi"]
    assert "by 3 processes" in ended(begin(ranks, run.environment))
    for name, cells in alone.items():
        assert np.abs(cells).max() > 0
        np.testing.assert_allclose(session[f"wave/{name}"][:], cells, rtol=1e-5, atol=1e-12)
    session.remove("wave", recursive=True)
