"""Objects over HTTP, read by zarr-python, xarray and Dask as they are, in processes that know an address and a token alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from conftest import served

import terrace

for module in ("zarr", "xarray", "dask", "aiohttp"):
    pytest.importorskip(module)

# What the readers begin with.
PRELUDE = """
import sys
import dask.array, fsspec, numpy as np, xarray, zarr
url, token = sys.argv[1:3]
options = {"headers": {"Authorization": f"Bearer {token}"}}
"""


@dataclass
class Web:
    url: str
    token: str
    fingerprint: str

    def read(self, script: str, *arguments: str) -> str:
        """Runs a reader, in a process of its own and without Terrace's environment; gives what it says."""
        ran = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", PRELUDE + textwrap.dedent(script), self.url, self.token, *arguments],
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def web(run) -> Iterator[Web]:
    with served(run) as lines:
        yield Web(lines["zarr"].rstrip("/"), (run.scratch / "web.token").read_text().strip(), "")


SHAPE = (12, 30, 20, 16)


@pytest.fixture(scope="module")
def study(run) -> Iterator[dict[str, np.ndarray]]:
    """`flow`: two fields along time, which grows, and x, y, z, whose coordinates are arrays (explicit, not equally spaced)."""
    container = terrace.connect().create_container("flow")
    random = np.random.default_rng(3)
    names = ["time", "x", "y", "z"]
    cells = {"velocity": random.normal(2000, 500, SHAPE), "pressure": random.normal(size=SHAPE).astype("f4")}
    for name, extent in zip(names[1:], SHAPE[1:]):
        cells[name] = np.cumsum(random.uniform(0.5, 1.5, extent))
        container.create_array(name, extent, dimensions=[name])[:] = cells[name]
    cells["time"] = np.arange(SHAPE[0]) * 0.25
    time = container.create_array("time", 0, unlimited=[0], dimensions=["time"])
    for name in ("velocity", "pressure"):
        array = container.create_array(
            name, (0, *SHAPE[1:]), cells[name].dtype, unlimited=[0], dimensions=names, chunks=(2, 8, 20, 9)
        )
        for step in range(SHAPE[0]):
            array[step] = cells[name][step]
        array.tags["units"] = "m/s" if name == "velocity" else "Pa"
    time[: SHAPE[0]] = cells["time"]
    container.tags["title"] = "A flow"
    yield cells
    terrace.connect().remove("flow", recursive=True)


QUERIES = """
def queries(v, p, x):
    # Each is what xarray and NumPy have the same words for, as an array.
    return {
        "range subset": v[3:7, 10:25, 4:19, 2:14],
        "subset with mean by x": v[3:7, 10:25, 4:19, 2:14].mean(axis=(0, 2, 3)),
        "mean by x": v.mean(axis=(0, 2, 3)),
        "mean by z": v.mean(axis=(0, 1, 2)),
        "join of two fields, mean by x": (v * p).mean(axis=(0, 2, 3)),
        "steps from the fifth on": v[5:, 0, 0, 0],
        "explicit dimensions": v[:, (x > 4) & (x < 11)].sum(axis=(1, 2, 3)),
    }

def filtered(v):
    # 1 % of the cells, with their coordinates.
    found = np.nonzero(v > 3163)
    return np.stack([*found, v[found]])
"""


@pytest.mark.parametrize("state", ["staged", "durable"])
def test_xarray_dask_and_zarr_answer_what_numpy_does(web: Web, study, tmp_path: Path, state: str) -> None:
    if state == "durable":
        terrace.connect()["flow"].flush()
    web.read(
        QUERIES
        + """
        import numpy
        dataset = xarray.open_zarr(f"{url}/flow", storage_options=options)
        assert dataset.attrs["title"] == "A flow" and dataset.velocity.attrs["units"] == "m/s"
        assert dataset.sizes == {"time": 12, "x": 30, "y": 20, "z": 16} and dataset.velocity.chunks is not None
        lazy = queries(dataset.velocity.data, dataset.pressure.data, dataset.x.values)
        found = {f"dask {name}": value.compute() for name, value in lazy.items()}
        # By the names and the values of coordinates.
        found["xarray"] = dataset.velocity.sel(x=slice(4, 11), time=slice(1, 2)).mean(["y", "z"]).values
        group = zarr.open_group(f"{url}/flow", mode="r", storage_options=options)
        assert sorted(group.array_keys()) == ["pressure", "time", "velocity", "x", "y", "z"]
        velocity, pressure = group["velocity"], group["pressure"]
        found["zarr whole"] = velocity[:]
        found["zarr part"] = velocity[3:7, 10:25:2, 4:19, -1]
        found["filter"] = filtered(velocity[:])
        plain = xarray.open_zarr(f"{url}/flow", chunks=None, storage_options=options)
        found["xarray pressure"] = plain.pressure.isel(x=3, z=slice(2, 5)).values
        found["dask array"] = dask.array.from_zarr(f"{url}/flow/velocity", storage_options=options)[-1].compute()
        found["time"] = plain.time.values
        numpy.savez(sys.argv[3], **found)
        """.replace("\n        ", "\n"),
        str(tmp_path / "found.npz"),
    )
    found = dict(np.load(tmp_path / "found.npz"))
    space: dict = {"np": np}
    exec(QUERIES, space)
    velocity, x = study["velocity"], study["x"]
    for name, value in space["queries"](velocity, study["pressure"], x).items():
        np.testing.assert_allclose(found[f"dask {name}"], value, rtol=1e-12, err_msg=name)
    inside, times = (x >= 4) & (x <= 11), (study["time"] >= 1) & (study["time"] <= 2)
    np.testing.assert_allclose(found["xarray"], velocity[times][:, inside].mean((2, 3)), rtol=1e-12)
    np.testing.assert_array_equal(found["zarr whole"], velocity)
    np.testing.assert_array_equal(found["zarr part"], velocity[3:7, 10:25:2, 4:19, -1])
    rows = space["filtered"](velocity)
    assert 0.005 < rows.shape[1] / velocity.size < 0.015
    np.testing.assert_array_equal(found["filter"], rows)
    np.testing.assert_array_equal(found["xarray pressure"], study["pressure"][:, 3, :, 2:5])
    np.testing.assert_array_equal(found["dask array"], velocity[-1])
    np.testing.assert_array_equal(found["time"], study["time"])


def test_a_reader_sees_complete_steps_while_a_writer_appends(web: Web, session: terrace.Session) -> None:
    run = session.create_container("growing")
    fields = [
        run.create_array(name, (0, 50, 40), "i4", unlimited=[0], dimensions=["step", "y", "x"], chunks=(1, 50, 40))
        for name in ("p", "q")
    ]
    reader = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent("""
            seen = 0
            while seen < 60:
                dataset = xarray.open_zarr(f"{url}/growing", chunks=None, storage_options=options)
                assert dataset.p.shape == dataset.q.shape and dataset.sizes["step"] >= seen, dataset
                seen = dataset.sizes["step"]
                if seen:
                    p, q = dataset.p[-1].values, dataset.q[-1].values
                    assert (p == seen).all() and (q == -seen).all(), (seen, p, q)
                print(seen, flush=True)
            """), web.url, web.token],
        env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reader.stdout.readline().strip() == "0"
    for step in range(60):
        fields[0][step, :25] = step + 1
        fields[1][step] = -(step + 1)
        fields[0][step, 25:] = step + 1
    said, errors = reader.communicate(timeout=240)
    assert reader.returncode == 0 and said.split()[-1] == "60", errors
    session.remove("growing", recursive=True)


def test_types_and_values_of_every_kind_arrive(web: Web, session: terrace.Session) -> None:
    kinds = session.create_container("kinds")
    random = np.random.default_rng(5)
    cells = {}
    for name in ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]:
        bits = random.integers(0, 2 if name == "bool" else 256, (7, 5, np.dtype(name).itemsize), "u1")
        cells[name] = bits.view(name)[..., 0]
        kinds.create_array(name, (7, 5), name, chunks=(4, 4))[:] = cells[name]
    nan = kinds.create_array("holes", (4, 6), "f4", fill_value=np.nan, chunks=(3, 5))
    nan[1, 2] = 7
    said = web.read(
        """
        group = zarr.open_group(f"{url}/kinds", mode="r", storage_options=options)
        for name, array in sorted(group.arrays()):
            print(name, array[:].tobytes().hex())
        """
    )
    found = dict(line.split() for line in said.splitlines())
    assert found.keys() == {*cells, "holes"}
    for name, value in cells.items():
        assert found[name] == value.tobytes().hex(), name
    holes = np.full((4, 6), np.nan, "f4")
    holes[1, 2] = 7
    np.testing.assert_array_equal(np.frombuffer(bytes.fromhex(found["holes"]), "f4").reshape(4, 6), holes)
    session.remove("kinds", recursive=True)


def test_arrays_with_codecs_are_read_as_their_files(web: Web, session: terrace.Session) -> None:
    import zarr

    from terrace.zarr import TerraceStore

    container = session.create_container("packed")
    cells = np.arange(600).reshape(20, 30)
    zarr.create_array(TerraceStore(container), name="a", data=cells, chunks=(7, 11), compressors=zarr.codecs.GzipCodec())
    said = web.read(
        """
        array = zarr.open_group(f"{url}/packed", mode="r", storage_options=options)["a"]
        print(array.compressors[0].__class__.__name__, int(array[3:17, 5:].sum()))
        """
    )
    assert said.split() == ["GzipCodec", str(cells[3:17, 5:].sum())]
    session.remove("packed", recursive=True)


def test_no_token_is_no_data(web: Web, study) -> None:
    said = web.read(
        """
        for headers in ({}, {"Authorization": "Bearer " + token[:-1]}):
            try:
                xarray.open_zarr(f"{url}/flow", storage_options={"headers": headers})
            except Exception as error:
                print(type(error).__name__, getattr(error, "status", ""))
        """
    )
    assert said.split() == ["ClientResponseError", "401"] * 2, said


def test_by_tls_the_certificate_is_known_by_its_fingerprint(run, study) -> None:
    with served(run, "--tls") as lines:
        web = Web(lines["zarr"].rstrip("/"), (run.scratch / "web.token").read_text().strip(), lines["fingerprint"])
        by_tls(web, study)


def by_tls(web: Web, study) -> None:
    assert web.url.startswith("https://") and len(web.fingerprint) == 64
    said = web.read(
        """
        import aiohttp
        known = aiohttp.Fingerprint(bytes.fromhex(sys.argv[3]))
        dataset = xarray.open_zarr(f"{url}/flow", storage_options={**options, "ssl": known})
        print(float(dataset.velocity.mean()))
        other = aiohttp.Fingerprint(bytes(32))
        try:
            xarray.open_zarr(f"{url}/flow", storage_options={**options, "ssl": other})
        except aiohttp.ServerFingerprintMismatch:
            print("another")
        """,
        web.fingerprint,
    )
    mean, another = said.split()
    assert float(mean) == pytest.approx(study["velocity"].mean(), rel=1e-12) and another == "another"
