"""Containers, bytes objects, tags and errors."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import terrace


def test_a_container_is_a_mapping(place: terrace.Container) -> None:
    place["b"] = b"words"
    place["a"] = np.arange(3)
    inner = place.create_container("c/d")
    assert list(place) == ["a", "b", "c"] and len(place) == 3
    assert place.kinds() == {"a": "array", "b": "bytes", "c": "container"}
    assert "c/d" in place and "e" not in place
    assert place["c"]["d"] == inner == place["c/d"]
    assert place["b"].read() == b"words" and place["b"].size == 5
    assert place.get("nothing") is None
    del place["c"]
    assert list(place) == ["a", "b"]
    with pytest.raises(KeyError):
        place["c"]


def test_errors_are_typed_and_name_the_thing(place: terrace.Container) -> None:
    place["a"] = np.arange(3)
    with pytest.raises(terrace.NotFoundError, match="nothing") as raised:
        place["nothing"]
    assert isinstance(raised.value, FileNotFoundError) and isinstance(raised.value, KeyError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (type(raised.value), str(raised.value))
    with pytest.raises(FileExistsError):
        place.create_array("a", 3)
    with pytest.raises(terrace.WrongKindError, match="not an array"):
        place.open_array("")
    with pytest.raises(terrace.WrongKindError, match="reading"):
        place.open_array("a", "r")[:] = 1
    with pytest.raises(terrace.InvalidError, match="hint: names are paths below"):
        place.open("../../etc/passwd")
    with pytest.raises(terrace.BusyError, match="`.*never` did not appear within 0.01 s"):
        place.wait_for("never", 0.01)
    with pytest.raises(terrace.NoAgentError, match="terrace serve") as raised:
        terrace.connect("/usr")
    assert raised.value.hint and isinstance(raised.value, ConnectionError)


def test_values_are_put_as_numpy_assigns_them(place: terrace.Container) -> None:
    for dtype, values in [("u8", [2**64 - 1, 1]), ("i8", [2**53 + 1, 1.0]), ("S3", [b"a", b"abcd"]), ("i4", [1.5, 2]), ("?", [2, 0])]:
        expected = np.zeros(2, dtype)
        expected[...] = values
        array = place.create_array("a", 2, dtype, create="replace")
        array[...] = values
        assert array[...].tolist() == expected.tolist()
    for dtype, value in [("i1", 300), ("u1", -1), ("i8", 2**63), ("i1", np.int64(300)), ("i4", float("nan"))]:
        array = place.create_array("a", 2, dtype, create="replace")
        for values in ([value, 1], value):
            with pytest.raises((OverflowError, ValueError)):
                array[...] = values
        assert array[...].tolist() == [0, 0]


def test_cells_of_strings_that_were_never_put_are_empty(place: terrace.Container) -> None:
    assert place.create_array("s", 2, "S5")[...].tolist() == [b"", b""]
    assert place.create_array("t", 2, "S5", fill_value=b"none")[...].tolist() == [b"none"] * 2
    assert place.create_array("v", 2, fill_value=7)[...].tolist() == [7, 7]


def test_the_same_array_is_created_only_once_if_missing(place: terrace.Container) -> None:
    first = place.create_array("a", 3, "f4")
    first[:] = 7
    assert place.create_array("a", 3, "f4", create="if missing")[0] == 7
    with pytest.raises(terrace.ExistsError, match="another type"):
        place.create_array("a", 3, "f8", create="if missing")
    assert place.create_array("a", 5, "f8", create="replace").shape == (5,)


def test_a_bytes_object_is_a_file(place: terrace.Container) -> None:
    with place.open("f", "wb") as file:
        assert file.write(b"one\ntwo\nthree") == 13
        file.seek(4)
        file.write(np.frombuffer(b"TWO", "u1"))
        assert file.tell() == 7
    with place.open("f") as file:
        assert isinstance(file, io.BufferedIOBase) and file.readable() and not file.writable()
        assert file.readlines() == [b"one\n", b"TWO\n", b"three"]
        assert file.seek(-5, 2) == 8 and file.read() == b"three" and file.read() == b""
        assert file.seek(2) == 2 and file.peek(3)[:3] == b"e\nT" and file.read(3) == b"e\nT"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with place.open("f", "r+b") as file:
        assert file.truncate(7) == 7 and file.read() == b"one\nTWO"
    with place.open("f", "a") as file:
        file.write(" ümlaut\n")
    with place.open("f", "r") as file:
        assert list(file) == ["one\n", "TWO ümlaut\n"]
    with pytest.raises(FileExistsError):
        place.open("f", "x")
    with pytest.raises(FileNotFoundError):
        place.open("g")
    for mode in ("", "rw", "rbt", "z", "rr"):
        with pytest.raises(ValueError, match="mode"):
            place.open("f", mode)


def test_libraries_take_it_for_a_file(place: terrace.Container, run) -> None:
    cells = np.arange(1000.0).reshape(10, 100)
    with place.open("cells.npy", "wb") as file:
        np.save(file, cells)
    with place.open("cells.npy") as file:
        np.testing.assert_array_equal(np.load(file), cells)
    with place.open("archive.zip", "w+b") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("words", b"words" * 1000)
    with place.open("archive.zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.read("words") == b"words" * 1000
    # To a program it is an ordinary file below the root.
    np.testing.assert_array_equal(np.load(run.root / place.name / "cells.npy"), cells)


def test_what_is_not_flushed_is_not_seen_and_what_is_flushed_is(place: terrace.Container) -> None:
    file = place.open("f", "wb")
    file.write(b"gathered")
    assert file.size == 8
    file.flush()
    assert place["f"].read() == b"gathered"
    file.close()


def test_tags_are_a_mapping(place: terrace.Container) -> None:
    place["a"] = np.arange(3)
    tags = place["a"].tags
    tags["object"] = "M31"
    tags["exposure"] = np.float32(2.5)
    tags.update(count=7, ok=True, size=np.array([3, 4]), scale=(0.5, 1.5))
    expected = {"object": "M31", "exposure": 2.5, "count": 7, "ok": True, "size": [3, 4], "scale": [0.5, 1.5]}
    assert dict(tags) == expected and len(tags) == 6 and sorted(tags) == sorted(expected)
    assert tags["ok"] is True and isinstance(tags["count"], int)
    tags["object"] = "M33"
    assert place.tags_of("a")["object"] == "M33"
    del tags["object"]
    assert "object" not in tags and tags.get("object", "none") == "none"
    with pytest.raises(KeyError, match="object"):
        tags["object"]
    with pytest.raises(KeyError):
        del tags["object"]
    for wrong in (None, {"a": 1}, ["x"], b"bytes", 1j):
        with pytest.raises(TypeError, match="a tag's value is"):
            tags["wrong"] = wrong
    with pytest.raises(ValueError):
        tags["wrong"] = 1 << 63
    assert "wrong" not in tags


def test_tags_are_found_by_value_range_prefix_suffix_and_infix(place: terrace.Container, session) -> None:
    for number, name in enumerate(["M31", "M33", "NGC 31", "m31"]):
        place[name] = b""
        place.tags_of(name).update({"title": name, "number": number, "half": number / 2})

    def names(*arguments, **options) -> list[str]:
        found = place.find(*arguments, **options)
        assert all(name.startswith(place.name + "/") for name in found)
        return [name.removeprefix(place.name + "/") for name in found]

    assert names("title") == ["M31", "M33", "NGC 31", "m31"]
    assert names("title", "M31") == ["M31"]
    assert names("number", 2.0) == ["NGC 31"]
    assert names("number", low=1, high=2) == ["M33", "NGC 31"]
    assert names("half", low=0.75) == ["NGC 31", "m31"]
    assert names("title", prefix="M3") == ["M31", "M33"]
    assert names("title", suffix="31") == ["M31", "NGC 31", "m31"]
    assert names("title", infix="C 3") == ["NGC 31"]
    assert names("title", suffix="31", prefix="M") == ["M31"]
    assert names("nothing") == []
    place.tags_of("M31")["title"] = "Andromeda"
    assert names("title", "M31") == [] and names("title", "Andromeda") == ["M31"]
    del place["M33"]
    assert names("title", prefix="M3") == []
    assert session.find("title", "Andromeda") == [f"{place.name}/M31"]


def test_what_is_flushed_is_zarr_that_zarr_python_reads(place: terrace.Container, run) -> None:
    zarr = pytest.importorskip("zarr")
    cells = np.arange(60.0).reshape(6, 10)
    array = place.create_array("t", cells.shape, chunks=(4, 4), fill_value=np.nan, dimensions=["time", "x"])
    array[:] = cells
    array.tags["units"] = "K"
    assert not place.stat("t").is_durable
    place.flush("t")
    assert place.stat("t").is_durable and place.stat("t").bytes == 480
    found = zarr.open_array(run.root / place.name / "t", mode="r")
    np.testing.assert_array_equal(found[:], cells)
    assert found.attrs["units"] == "K" and found.metadata.dimension_names == ("time", "x")
    document = json.loads((run.root / place.name / "t/zarr.json").read_text())
    assert document["fill_value"] == "NaN"
