"""zarr-python, xarray, dask and fsspec on staged containers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import terrace

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")
dask_array = pytest.importorskip("dask.array")
fsspec = pytest.importorskip("fsspec")

from terrace.zarr import TerraceStore  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The data type .(NullTerminatedBytes|FixedLengthUTF32|DateTime64|TimeDelta64)")
TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "S5", "f2", "U5", "M8[ns]", "M8[D]", "m8[s]"]


@pytest.fixture
def store(place: terrace.Container) -> TerraceStore:
    return TerraceStore(place)


@pytest.mark.parametrize("dtype", TYPES)
def test_zarr_reads_what_is_staged(place: terrace.Container, store: TerraceStore, dtype: str, run) -> None:
    random = np.random.default_rng(TYPES.index(dtype))
    cells = random.integers(0, 100, (11, 13)).astype(dtype)
    array = place.create_array("a", cells.shape, dtype, chunks=(4, 5), fill_value=cells[0, 0])
    array[:] = cells
    array.tags.update(units="K", levels=[1, 2])
    assert array.staged_regions(), "the cells are to be read from where they are staged"
    found = zarr.open_group(store, mode="r")["a"]
    assert found.shape == cells.shape and found.chunks == (4, 5) and found.dtype == cells.dtype
    np.testing.assert_array_equal(found[:], cells)
    np.testing.assert_array_equal(found[3:9:2, ::4], cells[3:9:2, ::4])
    assert dict(found.attrs) == {"units": "K", "levels": [1, 2]}
    assert not list((run.root / place.name / "a").glob("c/*")), "nothing was flushed"
    array[5] = cells[6]
    np.testing.assert_array_equal(found[5], cells[6])


@pytest.mark.parametrize("dtype", TYPES)
def test_what_zarr_writes_is_an_array_of_terrace(place: terrace.Container, store: TerraceStore, dtype: str) -> None:
    cells = np.random.default_rng(1).integers(0, 100, (11, 13)).astype(dtype)
    group = zarr.create_group(store, overwrite=True, attributes={"title": "x", "mixed": [1, "a"], "none": None})
    fill = np.array(5).astype(dtype)[()]
    array = group.create_array(
        "a", shape=cells.shape, dtype=cells.dtype, chunks=(4, 5), compressors=None, fill_value=fill,
        attributes={"units": "K", "nested": {"a": 1}}, dimension_names=["y", "x"],
    )
    array[2:, 3:] = cells[2:, 3:]
    staged = place["a"]
    assert isinstance(staged, terrace.Array) and staged.dtype == cells.dtype and staged.dimensions == ("y", "x")
    np.testing.assert_array_equal(staged[2:, 3:], cells[2:, 3:])
    assert (staged[:2] == fill).all()
    staged[0] = cells[0]
    np.testing.assert_array_equal(array[0], cells[0])
    assert place.tags["title"] == "x" and staged.tags["units"] == "K"
    again = zarr.open_group(store, mode="r")
    assert dict(again.attrs) == {"title": "x", "mixed": [1, "a"], "none": None}
    assert dict(again["a"].attrs) == {"units": "K", "nested": {"a": 1}}
    array.attrs["units"] = "C"
    del array.attrs["nested"]
    assert dict(zarr.open_group(store, mode="r")["a"].attrs) == {"units": "C"} and staged.tags["units"] == "C"
    place.flush()
    np.testing.assert_array_equal(zarr.open_group(f"{place.session.root}/{place.name}", mode="r")["a"][2:, 3:], cells[2:, 3:])


def test_arrays_with_codecs_and_without_dimensions_are_kept_as_files(place: terrace.Container, store: TerraceStore) -> None:
    group = zarr.create_group(store, overwrite=True)
    cells = np.arange(100.0).reshape(10, 10)
    group.create_array("packed", data=cells, chunks=(5, 5))
    group.create_array("single", data=np.array(7.5), compressors=None)
    group.create_array("sharded", data=cells, chunks=(2, 2), shards=(4, 4))
    again = zarr.open_group(store, mode="r")
    assert sorted(again.array_keys()) == ["packed", "sharded", "single"]
    np.testing.assert_array_equal(again["packed"][:], cells)
    np.testing.assert_array_equal(again["sharded"][3:7], cells[3:7])
    assert again["single"][()] == 7.5
    del zarr.open_group(store)["packed"]
    assert sorted(zarr.open_group(store, mode="r").array_keys()) == ["sharded", "single"]


def test_deleting_overwriting_and_empty_chunks_are_as_in_other_stores(place: terrace.Container, store: TerraceStore) -> None:
    group = zarr.create_group(store, overwrite=True)
    array = group.create_array("a", shape=(8,), chunks=(4,), dtype="i4", compressors=None, fill_value=3)
    array[:] = [1, 2, 3, 4, 5, 6, 7, 8]
    array[:4] = 3
    assert place["a"][:].tolist() == [3, 3, 3, 3, 5, 6, 7, 8]
    other = group.create_array("a", shape=(2, 2), chunks=(1, 2), dtype="f4", compressors=None, overwrite=True)
    assert not other[:].any() and place["a"].shape == (2, 2)
    with pytest.raises(terrace.InvalidError, match="unlimited"):
        other.resize((4, 2))
    del group["a"]
    assert "a" not in place and "a" not in group


def test_an_unlimited_array_grows_under_zarr(place: terrace.Container, store: TerraceStore) -> None:
    array = place.create_array("a", (0, 3), "i4", unlimited=[0], chunks=(2, 3))
    array.append([1, 2, 3])
    found = zarr.open_array(store, path="a")
    found.append(np.array([[4, 5, 6], [7, 8, 9]], "i4"))
    assert array[:].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    array.append([0, 0, 0])
    assert zarr.open_array(store, path="a").shape == (4, 3)
    place.flush()
    assert place["a"].unlimited == (True, False)


def _dataset() -> "xarray.Dataset":
    random = np.random.default_rng(3)
    return xarray.Dataset(
        {"temperature": (("time", "x"), random.normal(size=(6, 50)), {"units": "K"}), "count": ("x", np.arange(50))},
        coords={"time": np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype("M8[ns]"), "x": np.arange(50.0), "run": 7},
        attrs={"title": "test", "version": 3},
    )


def test_xarray_opens_staged_containers(place: terrace.Container, store: TerraceStore) -> None:
    temperature = place.create_array("temperature", (0, 4), "f4", unlimited=[0], dimensions=["time", "x"], chunks=(2, 2))
    place.create_array("x", 4, "f8", dimensions=["x"])[:] = [0, 0.5, 1, 1.5]
    temperature.append(np.arange(20, dtype="f4").reshape(5, 4))
    temperature.tags["units"] = "K"
    place.tags["title"] = "a run"
    dataset = xarray.open_zarr(store, consolidated=False)
    assert dict(dataset.sizes) == {"time": 5, "x": 4} and dataset.attrs == {"title": "a run"}
    assert dataset.temperature.attrs == {"units": "K"} and dataset.temperature.chunks is not None
    np.testing.assert_array_equal(dataset.temperature.sel(x=0.5).values, temperature[:, 1])
    np.testing.assert_array_equal(dataset.temperature.mean("time").compute(), temperature[:].mean(0))


@pytest.mark.parametrize("compressors", [None, "auto"], ids=["arrays of terrace", "files"])
def test_a_dataset_comes_back_as_it_was(place: terrace.Container, store: TerraceStore, compressors) -> None:
    dataset = _dataset()
    encoding = {name: {"compressors": compressors} for name in dataset.variables} if compressors is None else {}
    dataset.to_zarr(store, mode="w", zarr_format=3, consolidated=False, encoding=encoding)
    xarray.testing.assert_identical(xarray.open_zarr(store, consolidated=False).load(), dataset)
    assert isinstance(place.get("temperature"), terrace.Array)
    place.flush()
    place.evict()
    xarray.testing.assert_identical(xarray.open_zarr(store, consolidated=False).load(), dataset)
    in_root = xarray.open_zarr(f"{place.session.root}/{place.name}", consolidated=False)
    xarray.testing.assert_identical(in_root.load(), dataset)


ENCODINGS = {
    "zstd": {"chunks": (4, 5), "compressors": "auto"},
    "gzip": {"chunks": (4, 5), "compressors": zarr.codecs.GzipCodec(level=3)},
    "sharded": {"chunks": (2, 5), "shards": (4, 10), "compressors": zarr.codecs.ZstdCodec(checksum=True)},
    "transposed": {"chunks": (4, 5), "filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "compressors": None},
    "big-endian": {"chunks": (4, 5), "serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": None},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", ["i2", "f8"])
def test_arrays_that_others_wrote_encoded_are_read(place: terrace.Container, run, encoding: str, dtype: str) -> None:
    cells = np.random.default_rng(2).integers(-100, 100, (11, 13)).astype(dtype)
    path = run.root / place.name / "encoded"
    made = zarr.create_array(path, shape=cells.shape, dtype=dtype, fill_value=7, **ENCODINGS[encoding])
    made[:6] = cells[:6]
    found = place["encoded"]
    np.testing.assert_array_equal(found[:6], cells[:6])
    np.testing.assert_array_equal(found[1:5:2, ::3], cells[1:5:2, ::3])
    assert (found[8:] == 7).all()
    with pytest.raises(terrace.TerraceError, match="reading only"):
        found[0] = 1


def test_a_damaged_chunk_and_an_unknown_codec_are_told_with_names(place: terrace.Container, run) -> None:
    path = run.root / place.name / "encoded"
    made = zarr.create_array(path, shape=(8,), dtype="i4", chunks=(4,))
    made[:] = range(8)
    (path / "c/1").write_bytes(b"no zstd")
    np.testing.assert_array_equal(place["encoded"][:4], range(4))
    with pytest.raises(terrace.TerraceError, match=r"chunk \[1\] of .*encoded can't be decoded"):
        place["encoded"][4:]
    metadata = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(metadata.replace('"zstd"', '"nobodys.codec"'))
    with pytest.raises(terrace.TerraceError, match="nobodys.codec"):
        place["encoded"][:4]


def test_dask_computes_on_arrays(place: terrace.Container, store: TerraceStore) -> None:
    cells = np.random.default_rng(5).normal(size=(100, 40))
    array = place.create_array("a", cells.shape, chunks=(30, 40))
    array[:] = cells
    lazy = dask_array.from_array(array, chunks=array.chunks)
    np.testing.assert_allclose(lazy.sum(0).compute(), cells.sum(0))
    out = place.create_array("b", cells.shape, chunks=(30, 40))
    dask_array.store(lazy * 2, out)
    np.testing.assert_array_equal(out[:], cells * 2)
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    np.testing.assert_array_equal(dask_array.from_zarr(again, component="a").compute(scheduler="processes"), cells)


def test_zarr_v2_is_refused_when_it_is_written(place: terrace.Container, store: TerraceStore) -> None:
    with pytest.raises(terrace.InvalidError, match="is a key of Zarr v2, and this store holds Zarr v3 only"):
        zarr.create_group(store, zarr_format=2)
    with pytest.raises(terrace.InvalidError, match="Zarr v3 only"):
        zarr.create_array(store, name="a", shape=(4,), dtype="i4", zarr_format=2)
    with pytest.raises(terrace.InvalidError, match="Zarr v3 only"):
        _dataset().to_zarr(store, mode="a", zarr_format=2, consolidated=False)
    assert list(place) == []


def test_consolidated_metadata_is_refused_and_not_needed(place: terrace.Container, store: TerraceStore) -> None:
    dataset = _dataset()
    for consolidated in (None, True):
        dataset.to_zarr(store, mode="w", zarr_format=3, consolidated=consolidated)
        for asked in (None, True, False):
            xarray.testing.assert_identical(xarray.open_zarr(store, consolidated=asked).load(), dataset)
    with pytest.raises(TypeError, match="doesn't support consolidated metadata"):
        zarr.consolidate_metadata(store)
    with pytest.raises(ValueError, match="doesn't support consolidated metadata"):
        zarr.open_consolidated(store)


def test_a_store_that_is_read_only_is_not_written(place: terrace.Container, store: TerraceStore) -> None:
    place["a"] = np.arange(4)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(store.with_read_only(True), path="a", mode="r")[:] = 0
    assert place["a"][1] == 1


def test_fsspec_opens_lists_and_removes(place: terrace.Container, run, tmp_path) -> None:
    files = fsspec.filesystem("terrace")
    base = place.name
    with fsspec.open(f"terrace://{base}/dir/words.txt", "w") as file:
        file.write("words")
    assert files.cat(f"{base}/dir/words.txt") == b"words" and place["dir/words.txt"].read() == b"words"
    assert files.cat_file(f"terrace://{base}/dir/words.txt", 1, -1) == b"ord"
    assert files.ls(base, detail=False) == [f"{base}/dir"] and files.isdir(base) and files.isfile(f"{base}/dir/words.txt")
    assert files.info(f"{base}/dir/words.txt")["size"] == 5
    files.pipe({f"{base}/dir/a.bin": b"a" * 10, f"{base}/dir/b.bin": b"b"})
    assert sorted(files.glob(f"terrace://{base}/**/*.bin")) == [f"{base}/dir/a.bin", f"{base}/dir/b.bin"]
    assert files.du(base) == 16
    files.copy(f"{base}/dir/a.bin", f"{base}/c.bin")
    files.mv(f"{base}/c.bin", f"{base}/d.bin")
    assert not files.exists(f"{base}/c.bin") and files.cat(f"{base}/d.bin") == b"a" * 10
    files.get(f"{base}/dir", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/words.txt").read_text() == "words"
    files.put(str(tmp_path / "got"), f"{base}/put", recursive=True)
    assert files.find(f"{base}/put") == [f"{base}/put/a.bin", f"{base}/put/b.bin", f"{base}/put/words.txt"]
    with pytest.raises(FileNotFoundError):
        files.open(f"{base}/nothing")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{base}/put")
    files.rm(f"{base}/put", recursive=True)
    files.rm_file(f"{base}/d.bin")
    assert list(place) == ["dir"]


def test_urls_are_enough_for_zarr_and_xarray(place: terrace.Container, run) -> None:
    cells = np.arange(24.0).reshape(4, 6)
    array = place.create_array("t", cells.shape, chunks=(3, 4), dimensions=["y", "x"])
    array[:] = cells
    files = fsspec.filesystem("terrace")
    assert files.find(f"{place.name}/t") == [
        f"{place.name}/t/{key}" for key in ("c/0/0", "c/0/1", "c/1/0", "c/1/1", "zarr.json")
    ]
    assert files.info(f"{place.name}/t/c/0/0")["size"] == 96
    np.testing.assert_array_equal(zarr.open_group(f"terrace://{place.name}", mode="r")["t"][:], cells)
    dataset = xarray.open_zarr(f"terrace://{place.name}", consolidated=False)
    np.testing.assert_array_equal(dataset.t.values, cells)

