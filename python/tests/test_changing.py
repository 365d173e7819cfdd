"""Objects that get another name or another shape, functions that are applied to regions, and questions about values: against NumPy."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import terrace


def test_an_object_gets_another_name_with_its_tags_and_all_that_lies_below_it(place, session, run):
    array = place.create_array("old/deep/a", (40, 30), "f4", chunks=(8, 30))
    values = np.arange(1200, dtype="f4").reshape(40, 30)
    array[...] = values
    array.tags["units"] = "K"
    place["old/table"] = b"rows"
    place.tags_of("old")["run"] = 7
    place["other"] = b"there already"

    place.rename("old", "new/name")
    assert sorted(place) == ["new", "other"] and "old" not in place
    assert place["new/name/table"].read() == b"rows"
    moved = place["new/name/deep/a"]
    assert np.array_equal(moved[...], values)
    assert moved.tags["units"] == "K" and place.tags_of("new/name")["run"] == 7
    assert session.find("units", "K") == [f"{place.name}/new/name/deep/a"]
    # What was staged before it had its name, and what is put after.
    moved[0] = -1
    values[0] = -1
    place.flush("new")
    root = pathlib.Path(run.root) / place.name
    assert (root / "new/name/table").read_bytes() == b"rows"
    chunk = np.fromfile(root / "new/name/deep/a/c/0/0", "<f4").reshape(8, 30)
    assert np.array_equal(chunk, values[:8])
    place.evict("new")
    assert np.array_equal(place["new/name/deep/a"][...], values)

    with pytest.raises(terrace.ExistsError):
        place.rename("new/name/table", "other")
    with pytest.raises(terrace.NotFoundError):
        place.rename("nothing", "something")
    for bad in ("new/name/below", "new"):
        with pytest.raises(terrace.TerraceError):
            place.rename("new", bad)
    with pytest.raises(terrace.TerraceError):
        session.rename("", f"{place.name}/root")
    with pytest.raises(terrace.TerraceError):
        place.rename("other", "../../../outside")
    assert place["other"].read() == b"there already"
    with pytest.raises(terrace.NotFoundError):
        array.flush()


def test_an_array_gets_any_shape_and_what_was_cut_off_never_comes_back(place, run):
    array = place.create_array("a", (20, 30), "i4", chunks=(7, 8), fill_value=-5)
    other = place.open_array("a")
    model = np.arange(600, dtype="i4").reshape(20, 30)
    array[...] = model
    chance = np.random.default_rng(5)
    shapes = [(11, 30), (25, 9), (25, 30), (7, 8), (1, 1), (14, 16), (0, 16), (20, 30)]
    shapes += [tuple(int(n) for n in chance.integers(0, 40, 2)) for _ in range(12)]
    for number, shape in enumerate(shapes):
        array.resize(shape)
        larger = np.full(shape, -5, "i4")
        common = tuple(slice(0, min(a, b)) for a, b in zip(shape, model.shape))
        larger[common] = model[common]
        model = larger
        assert array.shape == other.shape == shape
        assert np.array_equal(other[...], model), f"shape {number}, {shape}"
        if model.size and number % 3 != 1:
            row = int(chance.integers(shape[0]))
            other[row] = number
            model[row] = number
            assert np.array_equal(array[...], model)
    with pytest.raises(terrace.OutOfBoundsError):
        array[1000, 0]
    for bad in ((1,), (1, 1, 1), (1 << 61, 1 << 61)):
        with pytest.raises(terrace.TerraceError):
            array.resize(bad)
    with pytest.raises(terrace.TerraceError):
        place.open_array("a", "r").resize((1, 1))
    with array.lock(np.s_[0:1, 0:1]), pytest.raises(terrace.BusyError):
        array.resize((3, 3))
    array.resize((3, 3))
    assert array.shape == (3, 3)

    grows = place.create_array("grows", (0, 4), "f8", unlimited=[0])
    grows[9] = 2
    grows.resize((5, 4))
    assert grows.shape == (5, 4)
    grows[6] = 3
    assert np.array_equal(grows[...], [[0.0] * 4] * 6 + [[3.0] * 4])


def test_functions_change_what_is_put_and_got(place, tmp_path):
    array = place.create_array("a", (10, 12), "f8")
    plain = place.open_array("a")
    seen = []

    def to_kelvin(cells, region):
        seen.append(region)
        return cells + 273.15

    def check(cells, region):
        if np.isnan(cells).any():
            raise ValueError("not a number")

    array.hook("put", to_kelvin)
    array.hook("put", check)
    celsius = np.arange(120.0).reshape(10, 12)
    mine = celsius.copy()
    array[...] = mine
    assert np.array_equal(mine, celsius), "the program's own cells stay what they are"
    array[2:9:3, ::-2] = 0
    model = celsius + 273.15
    model[2:9:3, ::-2] = 273.15
    assert np.array_equal(plain[...], model)
    assert seen[0] == (slice(0, 10, 1), slice(0, 12, 1))
    with pytest.raises(ValueError, match="not a number"):
        array[0, 0] = np.nan
    assert np.array_equal(plain[...], model), "nothing is put where a function fails"
    array.start_put(np.s_[1], np.zeros(12)).result()
    model[1] = 273.15
    array.hook("get", lambda cells, region: cells - 273.15)
    assert np.array_equal(array[3:5, 1:4], model[3:5, 1:4] - 273.15)
    assert np.array_equal(array.start_get(4).result(), model[4] - 273.15)
    buffer = np.empty((10, 12))
    assert array.get(out=buffer) is buffer and np.array_equal(buffer, model - 273.15)
    array.unhook()
    assert np.array_equal(array[...], model)
    with pytest.raises(terrace.InvalidError):
        array.hook("sometimes", check)


def test_functions_of_a_shared_library_are_applied_by_their_names(place, tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        print("SKIPPED: no cc here", file=sys.stderr)
        pytest.skip("SKIPPED: no cc here")
    source = tmp_path / "functions.c"
    source.write_text(
        "#include <stdint.h>\n#include <stddef.h>\n#include <string.h>\n"
        "struct region { int rank; uint64_t offset[8], count[8], stride[8]; };\n"
        "int doubled(const struct region *r, const char *type, void *cells, size_t bytes, void *context) {\n"
        '  double *c = cells; if (strcmp(type, "float64") || context || r->rank != 2) return 7;\n'
        "  if (r->count[0] * r->count[1] * sizeof *c != bytes) return 8;\n"
        "  for (size_t i = 0; i < bytes / sizeof *c; i++) c[i] *= 2;\n  return 0;\n}\n"
        "int never(const struct region *r, const char *t, void *c, size_t b, void *x) {\n"
        "  (void)r, (void)t, (void)c, (void)b, (void)x; return 3;\n}\n"
    )
    library = tmp_path / "functions.so"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    array = place.create_array("a", (6, 5), "f8")
    plain = place.open_array("a")
    array.hook_library("put", library, "doubled")
    array[1:4] = np.arange(15.0).reshape(3, 5)
    assert np.array_equal(plain[1:4], 2 * np.arange(15.0).reshape(3, 5))
    array.start_put(np.s_[0], np.ones(5)).result()
    assert np.array_equal(plain[0], [2.0] * 5)
    array.hook_library("get", library, "doubled")
    assert np.array_equal(array[1:4], 4 * np.arange(15.0).reshape(3, 5))
    array.hook_library("put", library, "never")
    with pytest.raises(terrace.TerraceError, match="never.*3"):
        array[0] = 1
    assert np.array_equal(plain[0], [2.0] * 5)
    for path, name in ((library, "nothing"), (tmp_path / "none.so", "doubled")):
        with pytest.raises(terrace.NotFoundError):
            array.hook_library("put", path, name)
    array.unhook()
    array[0] = 1
    assert np.array_equal(array[0], [1.0] * 5)


def test_cells_are_selected_by_what_they_are(place):
    shape = (50, 700)
    a, b = (place.create_array(name, shape, dtype, chunks=(16, 700)) for name, dtype in (("a", "f4"), ("b", "i8")))
    chance = np.random.default_rng(3)
    of_a = chance.normal(size=shape).astype("f4")
    of_b = chance.integers(-4, 5, shape)
    of_a[7, 9] = np.nan
    for row in range(0, 50, 10):
        a[row : row + 10] = of_a[row : row + 10]
        b[row : row + 10] = of_b[row : row + 10]
    place.evict("b")
    for is_flushed in (False, True):
        asked = [
            (a.where("> 1.5"), of_a > 1.5),
            (a.where("> 0") & b.where("= 3"), (of_a > 0) & (of_b == 3)),
            (a.where("< -2") | a.where(">= 2") | b.where("!= 0"), (of_a < -2) | (of_a >= 2) | (of_b != 0)),
            (a.where("> 100"), of_a > 100),
        ]
        for question, mask in asked:
            found = question.select()
            assert len(found) == mask.sum() and found.shape == shape
            assert np.array_equal(found.positions, np.flatnonzero(mask))
            assert all(map(np.array_equal, found.coordinates, np.nonzero(mask)))
            assert np.array_equal(found.data(b), of_b[mask]) and np.array_equal(found.data(a), of_a[mask], equal_nan=True)
            block = np.zeros(shape, bool)
            block[5:21, 100:400] = True
            assert np.array_equal(question.select(np.s_[5:21, 100:400]).positions, np.flatnonzero(mask & block))
        counts, edges = b.histogram(9, range=(-4, 4))
        wanted, wanted_edges = np.histogram(of_b, 9, (-4, 4))
        assert np.array_equal(counts, wanted) and np.allclose(edges, wanted_edges)
        assert a.histogram(4, index=np.s_[0:5])[0].sum() == 5 * 700
        if not is_flushed:
            place.flush()
    with pytest.raises(terrace.InvalidError):
        a.where("about 3")
    with pytest.raises(terrace.InvalidError):
        (a.where("> 1") & place.create_array("c", (3,), "i1").where("> 1")).select()
    with pytest.raises(terrace.InvalidError):
        a.where("> 1").select(np.s_[::2])
    with pytest.raises(terrace.InvalidError):
        bool(a.where("> 1"))
    with pytest.raises(terrace.InvalidError):
        place.create_array("text", (3,), "S4").where("> 1")


def test_an_object_is_a_member_of_several_containers(place):
    array = place.create_array("run/v", (4,), "i4")
    place["run/log"] = b"text"
    best = place.create_container("best")
    best.add_member(array)
    best.add_member(f"{place.name}/run/log")
    assert best.members() == [f"{place.name}/run/log", f"{place.name}/run/v"]
    assert place.containers_of("run/v") == [f"{place.name}/best", f"{place.name}/run"]
    best.remove_member(array)
    assert best.members() == [f"{place.name}/run/log"]
    with pytest.raises(terrace.NotFoundError, match="no member"):
        best.remove_member(array)
    place.remove("run", recursive=True)
    assert best.members() == []
