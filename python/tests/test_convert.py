"""Import and export: what comes back from a file is what was put in."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
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
    assert array.tags["scale_factor"] == 0.1 and place["model/single"][()] == 2.5
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
        step["half"] = np.array([0.5, -2, 1e-7], "f2")
    convert.import_file(place.session, path, f"{place.name}/run")
    step = place["run/step/1"]
    assert step.tags["time"] == 0.25 and list(step) == ["grows", "half", "strings"]
    assert step["grows"].unlimited == (True, False) and step["grows"].fill_value == -1
    assert step["strings"][:].tolist() == [b"one", b"three"]
    said = capsys.readouterr().err
    assert "words is left out" in said
    assert step["half"].dtype == "f2" and step["half"][:].tolist() == np.array([0.5, -2, 1e-7], "f2").tolist()


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


@pytest.fixture
def command(run) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "terrace.convert", *map(str, arguments)]
        return subprocess.run(words, env=run.environment, capture_output=True, text=True)

    return call


def test_hdus_of_one_name_are_all_imported(place: terrace.Container, tmp_path, command) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    units: list = [fits.PrimaryHDU()]
    for value, (label, version) in enumerate([("SCI", 1), ("ERR", 1), ("SCI", 2), ("SCI", 2), ("SCI", None)]):
        unit = fits.ImageHDU(np.full((2, 2), value, "i4"), name=label)
        if version is not None:
            unit.header["EXTVER"] = version
        units.append(unit)
    units.append(fits.BinTableHDU.from_columns([fits.Column("x", "D", array=[1.5])], name="SCI", ver=7))
    fits.HDUList(units).writeto(tmp_path / "hst.fits")
    done = command("import", tmp_path / "hst.fits", f"{place.name}/hst")
    assert done.returncode == 0, done.stderr
    names = {name: int(item[0, 0]) for name, item in place["hst"].items() if isinstance(item, terrace.Array)}
    assert names == {"SCI": 0, "ERR": 1, "SCI_2": 2, "SCI_3": 3, "SCI_4": 4}
    assert place["hst/SCI_7/x"][:].tolist() == [1.5]
    assert f"{place.name}/hst/SCI_2: HDU 3, as the name SCI is taken" in done.stdout


def test_columns_of_one_name_are_all_imported(place: terrace.Container, tmp_path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    table = fits.BinTableHDU.from_columns([fits.Column("a/b", "D", array=[1.5]), fits.Column("a_b", "D", array=[2.5])], name="T")
    table.writeto(tmp_path / "t.fits")
    convert.import_file(place.session, str(tmp_path / "t.fits"), f"{place.name}/t")
    assert {name: array[0] for name, array in place["t/T"].items()} == {"a_b": 1.5, "a_b_2": 2.5}


SAVED = {
    ".h5": lambda path, cells: pytest.importorskip("h5py").File(path, "w").create_dataset("b", data=cells).file.close(),
    ".npz": lambda path, cells: np.savez(path, new=cells, b=cells),
    ".fits": lambda path, cells: pytest.importorskip("astropy.io.fits").ImageHDU(cells, name="b").writeto(path),
}


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".fits"])
def test_arrays_that_are_there_are_replaced_only_when_asked(place: terrace.Container, tmp_path, command, suffix: str) -> None:
    file = tmp_path / f"cells{suffix}"
    SAVED[suffix](file, np.arange(4.0))
    name = "B" if suffix == ".fits" else "b"
    place[name] = np.arange(9)
    place[name].tags["old"] = 1
    refused = command("import", file, place.name)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert f"error: `{place.name}/{name}` is there already" in refused.stderr and "--replace" in refused.stderr
    assert list(place) == [name] and place[name].shape == (9,), "nothing is written before all names are known to be free"
    with pytest.raises(terrace.ExistsError):
        convert.import_file(place.session, str(file), place.name)
    done = command("import", "--replace", file, place.name)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(place[name][:], np.arange(4.0))
    assert "old" not in place[name].tags
    convert.import_file(place.session, str(file), place.name, replace=True)


def test_an_import_never_replaces_containers_and_bytes(place: terrace.Container, tmp_path, command) -> None:
    np.save(tmp_path / "cells.npy", np.arange(4))
    place.create_container("full")["inner"] = np.arange(3)
    place["text"] = b"words"
    place["array"] = np.arange(2)
    for name, says in [
        ("full", "is a container, which no import replaces"),
        ("text", "is a bytes object, which no import replaces"),
        ("array/below", "is an array, and can't become a container"),
        ("text/below", "is a bytes object, and can't become a container"),
    ]:
        refused = command("import", "--replace", tmp_path / "cells.npy", f"{place.name}/{name}")
        assert refused.returncode == 1 and says in refused.stderr and "hint: " in refused.stderr, refused.stderr
    assert place["full/inner"].shape == (3,) and place["text"].read() == b"words" and list(place["full"]) == ["inner"]
    assert command("import", tmp_path / "cells.npy", f"{place.name}/full/other").returncode == 0


def test_a_failed_import_leaves_what_was_there_and_nothing_new(place: terrace.Container, tmp_path, command) -> None:
    file = tmp_path / "cells.npz"
    np.savez(file, a=np.arange(1000), b=np.arange(1000) + 7)
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) - 1000] ^= 255  # among the cells of `b`, which the archive's checksum tells
    file.write_bytes(damaged)
    failed = command("import", file, f"{place.name}/deep/in")
    assert failed.returncode == 1 and f"error: `{file}` can't be imported: " in failed.stderr, failed.stderr
    assert "Traceback" not in failed.stderr and list(place) == [] and "removed again" in failed.stderr
    place["b"] = np.arange(3)
    place.tags["title"] = "mine"
    assert command("import", "--replace", file, place.name).returncode == 1
    assert list(place) == ["b"] and place["b"][:].tolist() == [0, 1, 2], "its source could not be read"


def test_an_array_of_many_blocks_is_read_whole_before_another_goes(place: terrace.Container, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(convert, "_BLOCK_BYTES", 4096)
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "cells.h5"
    cells = np.arange(8192.0)
    with h5py.File(file, "w") as made:
        made.create_dataset("b", data=cells, chunks=(512,), fletcher32=True)
        last = made["b"].id.get_chunk_info(15)
    place["b"] = np.arange(3)
    convert.import_file(place.session, str(file), place.name, replace=True)
    np.testing.assert_array_equal(place["b"][:], cells)
    place["b"] = np.arange(3)
    content = bytearray(file.read_bytes())
    content[last.byte_offset + 8] ^= 255
    file.write_bytes(content)
    with pytest.raises(terrace.InvalidError, match="cells.h5"):
        convert.import_file(place.session, str(file), place.name, replace=True)
    assert place["b"][:].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["u2", "u4", "u8", "i1"])
def test_fits_integers_without_a_sign_keep_their_type(place: terrace.Container, tmp_path, kind: str) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    bounds = np.iinfo(kind)
    cells = np.array([[bounds.min, 1, 2], [5, 100, bounds.max]], kind)
    fits.HDUList([fits.PrimaryHDU(cells), fits.ImageHDU(cells[:1], name="x")]).writeto(tmp_path / "u.fits")
    convert.import_file(place.session, str(tmp_path / "u.fits"), f"{place.name}/u")
    found = place["u/hdu0"]
    np.testing.assert_array_equal(found[:], cells)
    assert found.dtype == kind
    np.testing.assert_array_equal(place["u/X"][:], cells[:1])


@pytest.mark.parametrize("blank", [-99, 0])
@pytest.mark.parametrize("scale", [(2.5, 10), (1, 0)])
def test_scaled_fits_images_have_physical_values_and_blank_is_nan(
    place: terrace.Container, tmp_path, blank: int, scale: tuple[float, float], monkeypatch
) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    monkeypatch.setattr(convert, "_BLOCK_BYTES", 16)
    stored = np.arange(1, 25, dtype="i2").reshape(6, 4)
    stored[2, 1] = stored[5, 3] = blank
    with fits.open(_written(fits.PrimaryHDU(stored), tmp_path / "s.fits"), mode="update", do_not_scale_image_data=True) as file:
        file[0].header.update({"BSCALE": scale[0], "BZERO": scale[1], "BLANK": blank})
    convert.import_file(place.session, str(tmp_path / "s.fits"), f"{place.name}/s")
    found = place["s/hdu0"]
    expected = np.where(stored == blank, np.nan, stored * scale[0] + scale[1])
    np.testing.assert_array_equal(found[:], expected)
    assert found.dtype == "f4" and "BLANK" not in found.tags and "BSCALE" not in found.tags


def _written(unit, path: Path) -> Path:
    unit.writeto(path)
    return path


@pytest.mark.parametrize("kind, stored, value", [("u2", -32768, 0), ("i1", 3, -125)])
def test_fits_blanks_among_integers_are_told_by_their_value(
    place: terrace.Container, tmp_path, kind: str, stored: int, value: int
) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    cells = np.array([value, 1, 100], kind)
    unit = fits.ImageHDU(cells, name="x")
    unit.header["BLANK"] = stored
    unit.writeto(tmp_path / "b.fits")
    for name in ("one", "two"):
        convert.import_file(place.session, str(tmp_path / "b.fits"), f"{place.name}/{name}")
        found = place[name]["X"]
        assert found.dtype == kind and found[:].tolist() == cells.tolist() and found.tags["BLANK"] == value
        (tmp_path / "b.fits").unlink()
        convert.export_file(place.session, f"{place.name}/{name}", str(tmp_path / "b.fits"))


def test_compressed_fits_images_are_imported(place: terrace.Container, tmp_path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    cells = np.arange(10000, dtype="i4").reshape(100, 100)
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(cells, name="c"), fits.CompImageHDU(cells.astype("u2"), name="u")]).writeto(
        tmp_path / "c.fits"
    )
    convert.import_file(place.session, str(tmp_path / "c.fits"), f"{place.name}/c")
    np.testing.assert_array_equal(place["c/C"][:], cells)
    np.testing.assert_array_equal(place["c/U"][:], cells)


def test_what_hdf5_can_not_give_is_named_and_the_rest_is_imported(place: terrace.Container, tmp_path, capsys) -> None:
    h5py = pytest.importorskip("h5py")
    path = str(tmp_path / "odd.h5")
    with h5py.File(path, "w") as file:
        group = file.create_group("a")
        group["cells"] = np.arange(3)
        group["loop"] = group
        file["a/deep/back"] = group
        file["a/deep/cells"] = np.arange(2)
        file["also"] = group
        file["round"] = h5py.SoftLink("/")
        file["soft"] = h5py.SoftLink("/nowhere")
        file["external"] = h5py.ExternalLink("nothing.h5", "/x")
        file["empty"] = h5py.Empty("f4")
        file["good"] = h5py.SoftLink("/a/cells")
        file["single"] = 2.5
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs["title"] = "odd"
    convert.import_file(place.session, path, f"{place.name}/odd", quiet=False)
    odd = place["odd"]
    assert sorted(odd) == ["a", "also", "good", "single"] and sorted(odd["a"]) == ["cells", "deep"]
    assert odd["a/cells"][:].tolist() == odd["also/cells"][:].tolist() == odd["good"][:].tolist() == [0, 1, 2]
    assert list(odd["a/deep"]) == ["cells"] and odd.tags["title"] == "odd"
    said = capsys.readouterr()
    for name, reason in [
        ("a/loop", "the group /a again, in which it lies"),
        ("a/deep/back", "the group /a again"),
        ("round", "the group / again"),
        ("soft", "a link to /nowhere, which is not there"),
        ("external", "a link to /x in nothing.h5, which is not to be had"),
        ("empty", "a dataset without any cells"),
    ]:
        assert any(f"odd/{name} is left out: " in line and reason in line for line in said.err.splitlines()), (name, said.err)
    assert f"{place.name}/odd/single: float64 (), 8 bytes" in said.out
    assert odd["single"].shape == () and odd["single"][()] == 2.5


UNREADABLE = {
    "object": (np.array([{}, None], object), "cells of type object"),
    "month": (np.array(["2020-01"], "M8[M]"), "cells of type datetime64[M]"),
    "fields": (np.zeros(2, [("a", "i4"), ("b", "f8")]), "cells of type ["),
    "long": (np.zeros(2, "g"), "cells of type "),
}


@pytest.mark.parametrize("what", [*UNREADABLE, "short", "header", "noise", "empty"])
def test_an_npy_file_that_can_not_be_held_is_refused_in_one_sentence(place: terrace.Container, tmp_path, command, what) -> None:
    file = tmp_path / "cells.npy"
    cells, reason = UNREADABLE.get(what, (np.arange(100), ""))
    np.save(file, cells, allow_pickle=True)
    content = file.read_bytes()
    if what == "short":
        file.write_bytes(content[:-50])
        reason = "it is cut short: 750 of 800 bytes"
    elif what == "header":
        file.write_bytes(content[:40])
    elif what == "noise":
        file.write_bytes(np.random.default_rng(1).bytes(500))
        reason = "neither an .npy nor an .npz file"
    elif what == "empty":
        file.write_bytes(b"")
    failed = command("import", file, f"{place.name}/x")
    errors = [line for line in failed.stderr.splitlines() if not line.startswith("hint: ")]
    assert failed.returncode == 1 and len(errors) == 1, failed.stderr
    assert errors[0].startswith("error: ") and str(file) in errors[0] and reason in errors[0]
    assert list(place) == []


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".fits", ".npz", ".zarr"])
@pytest.mark.parametrize("what", ["noise", "empty", "short"])
def test_a_file_that_can_not_be_read_is_named_in_one_sentence(
    place: terrace.Container, tmp_path, command, suffix: str, what: str
) -> None:
    file = tmp_path / f"cells{suffix}"
    if what == "short" and suffix != ".zarr":
        place["cells"] = np.arange(20000)
        convert.export_file(place.session, f"{place.name}/cells", str(file)) if suffix != ".npz" else np.savez(file, np.arange(20000))
        del place["cells"]
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
    else:
        file.write_bytes(np.random.default_rng(2).bytes(3000) if what == "noise" else b"")
    failed = command("import", file, f"{place.name}/x")
    assert failed.returncode == 1 and "Traceback" not in failed.stderr, failed.stderr
    assert f"error: `{file}` can't be imported: " in failed.stderr, failed.stderr
    assert list(place) == []


def test_an_import_of_nothing_is_an_error(place: terrace.Container, tmp_path, command) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "none.h5", "w"):
        pass
    with h5py.File(tmp_path / "words.h5", "w") as file:
        file["a"], file["b"] = ["no", "length"], ["of", "words"]
        file.attrs["title"] = "words"
    np.savez(tmp_path / "none.npz")
    for name in ("none.h5", "words.h5", "none.npz"):
        failed = command("import", tmp_path / name, f"{place.name}/x")
        assert failed.returncode == 1 and f"error: nothing of `{tmp_path / name}` is imported: " in failed.stderr, failed.stderr
    assert list(place) == []


def test_names_in_an_archive_stay_below_the_container(place: terrace.Container, tmp_path, capsys) -> None:
    np.savez(tmp_path / "odd.npz", **{"../out": np.arange(3), "in/x": np.arange(2), "in": np.arange(4), "": np.arange(1)})
    convert.import_file(place.session, str(tmp_path / "odd.npz"), f"{place.name}/odd")
    assert list(place) == ["odd"] and list(place["odd"]) == ["in"] and place["odd/in/x"][:].tolist() == [0, 1]
    said = capsys.readouterr().err
    assert "`..` is no part of an object's name" in said and "another one in the file has that name" in said


def test_truth_values_among_tags_are_numbers_in_netcdf(place: terrace.Container, tmp_path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    place["cells"] = np.arange(3)
    place["cells"].tags.update(good=True, bad=False, units="K")
    place.tags["checked"] = True
    convert.export_file(place.session, place.name, str(tmp_path / "tags.nc"))
    with netcdf.Dataset(tmp_path / "tags.nc") as file:
        assert file.checked == 1 and file.checked.dtype == "i1"
        assert (file["cells"].good, file["cells"].bad, file["cells"].units) == (1, 0, "K")


def test_the_command_tells_what_it_did_and_what_is_wrong(place: terrace.Container, command, tmp_path) -> None:
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
