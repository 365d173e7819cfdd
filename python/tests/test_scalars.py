"""Arrays without dimensions: one cell, as NumPy's, HDF5's and Zarr's scalars, by every way that leads to an array."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import TERRACE, served
from test_elsewhere import elsewhere  # noqa: F401

import terrace

pytestmark = pytest.mark.filterwarnings("ignore:The data type .NullTerminatedBytes")
TYPES = ["?", "i1", "u4", "i8", "f4", "f8", "c16", "S5", "f2", "U5", "M8[ns]", "M8[D]", "m8[s]"]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_scalar_is_put_got_flushed_and_read_back(place: terrace.Container, run, dtype: str) -> None:
    cell = np.array(b"words" if dtype == "S5" else 1, dtype)
    array = place.create_array("a", (), dtype)
    assert (array.shape, array.ndim, array.size, array.chunks, array.unlimited) == ((), 0, 1, (), ())
    assert array[()] == np.zeros((), dtype)[()] and not array.staged_regions()
    array[...] = cell
    assert array[()] == cell and type(array[()]) is type(cell[()])
    assert np.asarray(array).shape == () and np.asarray(array) == cell
    assert array.staged_regions() == [((), cell.nbytes)]
    array.tags["units"] = "K"
    place.flush("a")
    path = run.root / place.name / "a"
    assert (path / "c").read_bytes() == cell.tobytes()
    array.evict()
    assert not array.staged_regions() and array[()] == cell and place["a"][()] == cell
    zarr = pytest.importorskip("zarr")
    found = zarr.open_array(str(path), mode="r")
    assert found.shape == () and found[()] == cell and dict(found.attrs) == {"units": "K"}


def test_what_indexes_a_scalar_is_what_indexes_numpys(place: terrace.Container) -> None:
    array, same = place.create_array("a", ()), np.zeros(())
    for index in ((), ..., None, (..., None)):
        array[index], same[index] = 2.5, 2.5
        np.testing.assert_array_equal(array[index], same[index])
        assert np.shape(array[index]) == np.shape(same[index])
    for index in (0, slice(None), (0, 0)):
        with pytest.raises(terrace.OutOfBoundsError, match="too many indices"):
            array[index]
        with pytest.raises(terrace.OutOfBoundsError, match="too many indices"):
            array[index] = 1
    for act in (len, iter, list):
        with pytest.raises(TypeError):
            act(array)
    with pytest.raises(terrace.InvalidError, match="nothing of it grows"):
        array.append(1)
    with pytest.raises(terrace.InvalidError):
        array.resize((2,))
    with pytest.raises(terrace.InvalidError, match="do not fit"):
        array[...] = [1, 2]
    with pytest.raises(terrace.InvalidError):
        place.create_array("b", (), chunks=(1,))
    with pytest.raises(terrace.InvalidError):
        place.create_array("b", (), unlimited=[0])
    assert array[()] == 2.5 and array.grow(()) is None


def test_transfers_locks_functions_and_questions_of_a_scalar(place: terrace.Container) -> None:
    array = place.create_array("a", (), "f8", fill_value=-1)
    array.start_put(..., 3).result(20)
    assert array.start_get().result(20) == 3
    with array.lock(), pytest.raises(terrace.BusyError):
        place["a"].lock(timeout=0)
    with array.locked() as cell:
        assert cell.shape == () and cell == 3
        cell[...] = 4
    assert array[()] == 4
    assert len(array.where("> 3").select()) == 1 and len(array.where("> 4").select()) == 0
    selected = array.where("= 4").select()
    assert selected.data(array).tolist() == [4.0]
    counts, _ = array.histogram(bins=2, range=(0, 8))
    assert counts.tolist() == [0, 1]
    array.hook("put", lambda cells, region: cells * 2 if region == () else None)
    array.hook("get", lambda cells, region: cells + 1)
    array[...] = 5
    assert array[()] == 11 and place["a"][()] == 10
    place.rename("a", "deep/b")
    assert place["deep/b"][()] == 10
    place["c"] = np.float32(7)
    assert place["c"].shape == () and place["c"].dtype == "f4" and place["c"][()] == 7


def test_zarr_and_xarray_read_and_write_scalars(place: terrace.Container) -> None:
    zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
    from terrace.zarr import TerraceStore

    store = TerraceStore(place)
    group = zarr.create_group(store, overwrite=True)
    made = group.create_array("a", shape=(), dtype="f8", compressors=None)
    made[...] = 1.5
    assert place["a"].shape == () and place["a"][()] == 1.5 and group["a"][()] == 1.5
    assert sorted(store._keys.list_keys("a")) == ["a/c", "a/zarr.json"] and store._keys.list_directory("a") == ["zarr.json", "c"]
    place["a"][...] = 2.5
    assert zarr.open_group(store, mode="r")["a"][()] == 2.5
    dataset = xarray.Dataset({"t": ("x", np.arange(3.0)), "depth": 7.0})
    dataset.to_zarr(
        TerraceStore(place, "set"), zarr_format=3, consolidated=False,
        encoding={"t": {"compressors": None}, "depth": {"compressors": None}},
    )  # fmt: skip
    assert place["set/depth"][()] == 7
    xarray.testing.assert_identical(xarray.open_zarr(TerraceStore(place, "set"), consolidated=False).load(), dataset)
    store._keys.delete("a/c")
    assert place["a"][()] == 0


def test_sql_has_a_row_of_a_scalar_and_a_table_of_cells_leaves_it_out(session, place, query_program) -> None:
    pytest.importorskip("pyarrow")
    place.create_container("table")
    for staged in (True, False):
        place["table/g"] = np.float32(9.5)
        if not staged:
            place.flush("table")
            place["table/g"].evict()
        name = f"{place.name}/table"
        assert session.sql(f'SELECT * FROM "{name}/g"').numpy() == {"dim_0": [0], "g": [9.5]}
        assert session.sql(f'SELECT sum(g), count(*) AS n FROM "{name}/g" WHERE g > 9').arrow().to_pylist()[0]["n"] == 1
        assert session.sql(f'SELECT g FROM "{name}/g" WHERE g > 10').numpy()["g"].tolist() == []
        assert session.sql(f'SELECT g FROM "{name}"').numpy()["g"].tolist() == [9.5]
    cells = place.create_array("table/v", (3,))
    cells[...] = [1, 2, 3]
    assert session.sql(f'SELECT * FROM "{name}" ORDER BY v').arrow().to_pylist() == [{"dim_0": i, "v": i + 1.0} for i in range(3)]
    assert session.sql(f'SELECT v * g AS both FROM "{name}", "{name}/g" ORDER BY v').numpy()["both"].tolist() == [9.5, 19, 28.5]


def test_scalars_by_the_command_and_by_http(place: terrace.Container, run, tmp_path: Path) -> None:
    def terrace_says(*words: str) -> str:
        done = subprocess.run([TERRACE, *words], capture_output=True, text=True, timeout=60, env=run.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    np.save(tmp_path / "in.npy", np.array(6.25))
    terrace_says("put", str(tmp_path / "in.npy"), f"{place.name}/a")
    assert place["a"].shape == () and place["a"][()] == 6.25
    terrace_says("get", f"{place.name}/a", str(tmp_path / "out.npy"))
    assert np.load(tmp_path / "out.npy").shape == () and np.load(tmp_path / "out.npy") == 6.25
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("aiohttp")
    with served(run) as said:
        token = (run.scratch / "web.token").read_text().strip()
        options = {"headers": {"Authorization": f"Bearer {token}"}}
        found = zarr.open_array(f"{said['zarr'].rstrip('/')}/{place.name}/a", mode="r", storage_options=options)
        assert found.shape == () and found[()] == 6.25


def test_a_scalar_of_an_agent_elsewhere(elsewhere: str) -> None:  # noqa: F811
    session = terrace.connect(elsewhere)
    array = session.create_array("deep/a", (), "i4")
    array[...] = -3
    array.start_put(..., -4).result(20)
    assert array[()] == -4 and terrace.connect(elsewhere)["deep/a"][()] == -4
    with array.lock(timeout=5), pytest.raises(terrace.BusyError):
        terrace.connect(elsewhere)["deep/a"].lock(timeout=0)
    session.flush("deep")
    array.evict()
    assert array[()] == -4


@pytest.mark.parametrize("ending", [".h5", ".nc"])
def test_scalars_come_from_files_and_go_into_them(place: terrace.Container, tmp_path: Path, ending: str) -> None:
    from terrace import convert

    pytest.importorskip("h5py")
    pytest.importorskip("netCDF4")
    place["from/a"] = np.int32(12)
    place["from/b"] = np.arange(4.0)
    file = str(tmp_path / f"all{ending}")
    convert.export_file(place.session, f"{place.name}/from", file, quiet=True)
    convert.import_file(place.session, file, f"{place.name}/to", quiet=True)
    assert place["to/a"].shape == () and place["to/a"].dtype == "i4" and place["to/a"][()] == 12
    assert place["to/b"][...].tolist() == [0, 1, 2, 3]
