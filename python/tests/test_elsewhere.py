"""An agent elsewhere, by TCP with a token: the same arrays, files, tags and Zarr."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import TERRACE

import terrace


@pytest.fixture
def elsewhere(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token = tmp_path / "token"
    token.write_text("a token of enough characters")
    token.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for name in ("root", "state", "run", "ram"):
        (tmp_path / name).mkdir()
    server = subprocess.Popen(
        [TERRACE, "serve", "--quiet", "--root", tmp_path / "root", "--state", tmp_path / "state", "--runtime", tmp_path / "run",
         "--tier", f"ram={tmp_path / 'ram'}:64MiB", "--listen", address, "--token-file", token],
        stdout=subprocess.PIPE, env={k: v for k, v in os.environ.items() if not k.startswith("TERRACE_")}, text=True,
    )  # fmt: skip
    if not server.stdout.readline():
        server.stdout.close()
        pytest.fail(f"terrace serve ended with {server.wait(10)}")
    monkeypatch.setenv("TERRACE_TOKEN_FILE", str(token))
    yield f"tcp://{address}"
    server.send_signal(signal.SIGTERM)
    server.stdout.close()
    assert server.wait(60) == 0


def test_arrays_files_tags_and_zarr_of_an_agent_elsewhere(elsewhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr")
    from terrace.zarr import TerraceStore

    session = terrace.connect(elsewhere)
    assert not session.is_local
    cells = np.arange(60.0).reshape(6, 10)
    array = session.create_array("study/a", cells.shape, chunks=(4, 4))
    array[:] = cells
    np.testing.assert_array_equal(array[::-2, 3:7], cells[::-2, 3:7])
    assert array.start_get(2).result(20).tolist() == cells[2].tolist()
    array.tags["units"] = "K"
    assert session.find("units", "K") == ["study/a"]
    with array.lock(timeout=5), pytest.raises(terrace.BusyError):
        terrace.connect(elsewhere)["study/a"].lock(timeout=0)
    with session.open("study/words", "w") as file:
        file.write("words")
    assert session["study/words"].read() == b"words" and list(session["study"]) == ["a", "words"]
    found = zarr.open_group(TerraceStore(session, "study"), mode="r")["a"]
    np.testing.assert_array_equal(found[1:5], cells[1:5])
    monkeypatch.delenv("TERRACE_TOKEN_FILE")
    monkeypatch.setenv("TERRACE_TOKEN", "another token of enough characters")
    with pytest.raises(terrace.DeniedError):
        terrace.connect(elsewhere)
