"""Import and export: what comes back from a file is what was put in."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from conftest import TERRACE, begin

import terrace
from terrace import convert

CELLS = {
    "ints": np.arange(60, dtype="i4").reshape(3, 4, 5),
    "floats": np.linspace(-1, 1, 70).reshape(7, 10),
    "bytes": np.arange(20, dtype="u1"),
}


def fill(place: terrace.Container) -> None:
    for name, cells in CELLS.items():
        array = place.create_array(name, cells.shape, cells.dtype)
        array[:] = cells
        array.tags.update(units="K", number=3, scale=0.5, levels=[1, 2])
    place.tags["title"] = "a survey"


@pytest.mark.parametrize("file", ["s.h5", "s.nc", "s.zarr", "s.npz", "s.fits"])
def test_what_is_exported_is_imported_as_it_was(place: terrace.Container, run, tmp_path, file: str) -> None:
    fill(place.create_container("out"))
    convert.export_file(place.session, f"{place.name}/out", str(tmp_path / file))
    convert.import_file(place.session, str(tmp_path / file), f"{place.name}/in")
    for name, cells in CELLS.items():
        found = place["in"][name.upper() if f"{name.upper()}" in place["in"] else name]
        np.testing.assert_array_equal(found[:], cells)
        assert found.dtype == cells.dtype.newbyteorder("=")
        if file.endswith((".h5", ".nc", ".zarr")):
            assert {key: found.tags[key] for key in ("units", "number", "scale", "levels")} == {
                "units": "K", "number": 3, "scale": 0.5, "levels": [1, 2],
            }  # fmt: skip
            assert place["in"].tags["title"] == "a survey"
        if file.endswith(".fits"):
            assert found.tags["UNITS"] == "K" and place["in"].tags["TITLE"] == "a survey"


def test_a_netcdf_file_keeps_dimensions_and_missing_values(place: terrace.Container, tmp_path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    path = str(tmp_path / "model.nc")
    with netcdf.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        variable = file.createVariable("t", "i2", ("time", "x"), fill_value=-9)
        variable.setncatts({"scale_factor": 0.1, "units": "K"})
        variable.set_auto_maskandscale(False)
        variable[0:3] = np.arange(15).reshape(3, 5)
        variable[4] = 7
        file.createVariable("single", "f8")[...] = 2.5
    convert.import_file(place.session, path, f"{place.name}/model")
    array = place["model/t"]
    assert array.shape == (5, 5) and array.unlimited == (True, False) and array.dimensions == ("time", "x")
    assert array.fill_value == -9 and (array[3] == -9).all() and array[4, 0] == 7 and array[2, 4] == 14
    assert array.tags["scale_factor"] == 0.1 and place["model/single"][0] == 2.5
    convert.export_file(place.session, f"{place.name}/model", str(tmp_path / "again.nc"))
    with netcdf.Dataset(tmp_path / "again.nc") as file:
        assert file.dimensions["time"].isunlimited() and file["t"].dimensions == ("time", "x")
        np.testing.assert_allclose(file["t"][4], 0.7)
        assert file["t"][3].mask.all()


def test_hdf5_groups_are_containers(place: terrace.Container, tmp_path, capsys) -> None:
    h5py = pytest.importorskip("h5py")
    path = str(tmp_path / "run.h5")
    with h5py.File(path, "w") as file:
        step = file.create_group("step/1")
        step.attrs["time"] = 0.25
        step.create_dataset("grows", data=np.arange(6.0).reshape(2, 3), maxshape=(None, 3), fillvalue=-1)
        step["strings"] = np.array([b"one", b"three"])
        step["words"] = ["no", "length"]
        step["half"] = np.zeros(3, "f2")
    convert.import_file(place.session, path, f"{place.name}/run")
    step = place["run/step/1"]
    assert step.tags["time"] == 0.25 and list(step) == ["grows", "strings"]
    assert step["grows"].unlimited == (True, False) and step["grows"].fill_value == -1
    assert step["strings"][:].tolist() == [b"one", b"three"]
    said = capsys.readouterr().err
    assert "half is left out: an array can't have cells of type float16" in said and "words is left out" in said


def test_fits_tables_and_images(place: terrace.Container, tmp_path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    path = str(tmp_path / "sky.fits")
    primary = fits.PrimaryHDU(np.arange(12, dtype=">i2").reshape(3, 4))
    primary.header["OBJECT"] = "M31"
    primary.header["HISTORY"] = "made by a test"
    table = fits.BinTableHDU.from_columns(
        [fits.Column("ra", "D", array=[1.5, 2.5]), fits.Column("name", "5A", array=["a", "bcd"])], name="STARS"
    )
    fits.HDUList([primary, table]).writeto(path)
    convert.import_file(place.session, path, f"{place.name}/sky")
    image = place["sky/hdu0"]
    np.testing.assert_array_equal(image[:], np.arange(12).reshape(3, 4))
    assert image.dtype == "i2" and image.tags["OBJECT"] == "M31" and image.tags["HISTORY"] == "made by a test"
    assert place["sky/STARS/ra"][:].tolist() == [1.5, 2.5] and place["sky/STARS/name"][:].tolist() == [b"a", b"bcd"]


def test_large_arrays_go_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_BLOCK_BYTES", 100)
    for shape in [(1000,), (7, 11, 3), (2, 50, 40), (3, 0), (1, 1, 1)]:
        seen = np.zeros(shape, int)
        for block in convert._blocks(shape, 8):
            assert seen[block].nbytes <= 100
            seen[block] += 1
        assert (seen == 1).all()


def test_the_command_tells_what_it_did_and_what_is_wrong(place: terrace.Container, run, tmp_path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "terrace.convert", *arguments], env=run.environment, capture_output=True, text=True
        )

    np.save(tmp_path / "cells.npy", CELLS["floats"])
    done = command("import", str(tmp_path / "cells.npy"), f"{place.name}/cells")
    assert (done.returncode, done.stdout) == (0, f"{place.name}/cells: float64 (7, 10), 560 bytes\n"), done.stderr
    np.testing.assert_array_equal(place["cells"][:], CELLS["floats"])
    assert command("export", f"{place.name}/cells", str(tmp_path / "again.npy")).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), CELLS["floats"])
    for arguments, says in [
        (("import", "nothing.h5", "x"), "error: there is no file nothing.h5"),
        (("export", "nothing", "x.h5"), "error: "),
        (("import", str(tmp_path / "cells.npy"), f"{place.name}/x", "--format", "hdf5"), "error: "),
        (("export", f"{place.name}/cells", "x.dat"), "hint: give --format"),
    ]:
        failed = command(*arguments)
        assert failed.returncode == 1 and says in failed.stderr, failed.stderr
        assert "Traceback" not in failed.stderr
    assert list(place) == ["cells"], "a file that can't be read leaves no container"


def test_the_terrace_program_imports_and_exports(place: terrace.Container, run, tmp_path) -> None:
    def program(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TERRACE, *arguments],
            env={**run.environment, "TERRACE_PYTHON": sys.executable, **environment},
            capture_output=True,
            text=True,
        )

    place["cells"] = CELLS["floats"]
    settings = ("--config", run.config)
    for name in ("cells.h5", "cells.nc", "cells.fits", "cells.zarr"):
        done = program("export", *settings, "--quiet", f"{place.name}/cells", tmp_path / name)
        assert done.returncode == 0, done.stderr
        done = program("import", *settings, tmp_path / name, f"{place.name}/{name}")
        assert done.returncode == 0 and "560 bytes" in done.stdout, done.stderr
        (found,) = place[name].values()
        np.testing.assert_array_equal(found[:], CELLS["floats"])
    lacking = program("import", *settings, tmp_path / "cells.h5", f"{place.name}/x", TERRACE_PYTHON="/bin/false")
    assert lacking.returncode == 1 and "does not have the Python package" in lacking.stderr
    assert "hint:" in lacking.stderr and "x" not in place


def test_an_import_without_a_run_is_durable_when_it_returns(tmp_path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tt-", dir="/var/tmp") as durable,
        tempfile.TemporaryDirectory(prefix="tt-", dir="/dev/shm") as fast,
    ):
        run = begin(Path(durable), Path(fast))
        run.end()
        np.savez(tmp_path / "cells.npz", **CELLS)
        done = subprocess.run(
            [TERRACE, "import", "--config", run.config, tmp_path / "cells.npz", "cells"],
            env={**run.environment, "TERRACE_PYTHON": sys.executable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        zarr = pytest.importorskip("zarr")
        for name, cells in CELLS.items():
            np.testing.assert_array_equal(zarr.open_array(f"{run.root}/cells/{name}", mode="r")[:], cells)
