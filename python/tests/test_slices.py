"""Arrays slice as NumPy's do: random selections against an ndarray, and each edge by name."""

from __future__ import annotations

import numpy as np
import pytest

import terrace

TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "S5", "f2", "U5", "M8[ns]", "M8[D]", "m8[s]"]
SHAPES = [(400,), (20, 31), (7, 9, 11), (4, 5, 6, 7)]


def random_cells(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "S":
        letters = random.integers(97, 123, (*shape, dtype.itemsize)).astype("u1")
        return letters.reshape(-1).view(dtype).reshape(shape)
    if dtype.kind == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    return (random.normal(size=shape) * 1000).astype(dtype)


def random_index(random: np.random.Generator, shape: tuple[int, ...]) -> tuple:
    """Integers, slices of all kinds, an ellipsis somewhere, sometimes new axes."""
    parts: list = []
    for extent in shape:
        kind = random.integers(0, 10)
        if kind < 2:
            parts.append(int(random.integers(-extent, extent)))
        elif kind < 3:
            parts.append(slice(None))
        else:
            ends = [None if random.random() < 0.2 else int(random.integers(-extent - 3, extent + 4)) for _ in "ab"]
            step = int(random.choice([-7, -2, -1, 1, 1, 1, 2, 3]))
            parts.append(slice(*ends, step))
    if random.random() < 0.3:
        begin = int(random.integers(0, len(parts) + 1))
        parts[begin : int(random.integers(begin, len(parts) + 1))] = [Ellipsis]
    if random.random() < 0.1:
        parts.insert(int(random.integers(0, len(parts) + 1)), None)
    return tuple(parts)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{len(shape)}d")
@pytest.mark.parametrize("dtype", TYPES)
def test_random_slices_are_what_numpy_says(place: terrace.Container, dtype: str, shape: tuple[int, ...]) -> None:
    seed = TYPES.index(dtype) * 10 + len(shape)
    random = np.random.default_rng(seed)
    model = np.full(shape, b"fill" if dtype == "S5" else 1, dtype)
    array = place.create_array("array", shape, dtype, fill_value=model.flat[0], chunks=tuple(e // 2 + 1 for e in shape))
    for number in range(80):
        index = random_index(random, shape)
        found = f"seed {seed}, operation {number}: {index}"
        if random.random() < 0.5:
            values = random_cells(random, model[index].shape, model.dtype)
            array[index] = values
            model[index] = values
        else:
            got = array[index]
            assert np.shape(got) == model[index].shape, found
            assert got.dtype == model.dtype or not got.shape, found
            np.testing.assert_array_equal(got, model[index], err_msg=found)
        if number == 40:
            array.flush()
        if number == 60:
            array.evict()
    np.testing.assert_array_equal(np.asarray(array), model)


def test_an_integer_in_every_dimension_gives_a_scalar(place: terrace.Container) -> None:
    place["a"] = np.arange(12).reshape(3, 4)
    assert place["a"][1, -1] == 7
    assert isinstance(place["a"][1, -1], np.int64)
    assert place["a"][0, np.int32(2)] == 2


def test_values_are_broadcast_and_cast_as_numpy_does(place: terrace.Container) -> None:
    array = place.create_array("a", (3, 4), "i4")
    model = np.zeros((3, 4), "i4")
    for index, values in [
        (..., 1.9),
        (1, [1, 2, 3, 4]),
        ((slice(None), 2), np.array([[7.0, 8.0, 9.0]])),
        ((slice(None, None, -1), slice(1, 3)), np.arange(6).reshape(3, 2)),
        ((slice(0, 2), None, 0), [[5], [6]]),
    ]:
        array[index] = values
        model[index] = values
        np.testing.assert_array_equal(array[:], model)
    big = np.arange(12, dtype=">f4").reshape(4, 3).T
    array[:] = big
    np.testing.assert_array_equal(array[:], big)


@pytest.mark.parametrize(
    ("index", "error", "says"),
    [
        ((3, 0), IndexError, "index 3 is out of bounds for dimension 0, which has 3 cells"),
        ((0, -5), IndexError, "index -5 is out of bounds for dimension 1"),
        ((0, 0, 0), IndexError, "2 dimensions, but 3 were indexed"),
        ((..., ...), ValueError, "single ellipsis"),
        ([0, 1], ValueError, "type list is not a region"),
        (np.ones((3, 4), bool), ValueError, "not a region"),
        (True, ValueError, "bool"),
        (1.0, ValueError, "type float is not a region"),
    ],
)
def test_what_is_no_region_is_refused_and_says_why(place: terrace.Container, index, error, says: str) -> None:
    array = place.create_array("a", (3, 4), "f8")
    with pytest.raises(error, match=says):
        array[index]
    with pytest.raises(error, match=says):
        array[index] = 0
    with pytest.raises(error) as raised:
        array[index]
    assert isinstance(raised.value, terrace.TerraceError)


def test_values_that_do_not_fit_are_refused(place: terrace.Container) -> None:
    array = place.create_array("a", (3, 4), "f8")
    with pytest.raises(ValueError, match=r"shape \(5,\) do not fit into a selection of shape \(3, 4\)"):
        array[:] = np.zeros(5)
    np.testing.assert_array_equal(array[:], np.zeros((3, 4)))


def test_out_is_read_into_where_it_is(place: terrace.Container) -> None:
    place["a"] = np.arange(12.0).reshape(3, 4)
    out = np.zeros((6, 4))
    assert place["a"].get(slice(1, 3), out=out[2:4]).base is out
    np.testing.assert_array_equal(out[2:4], np.arange(4.0, 12).reshape(2, 4))
    assert not out[:2].any() and not out[4:].any()
    for wrong in (np.zeros((2, 3)), np.zeros((2, 4), "f4"), np.zeros((4, 2)).T, np.zeros((2, 8))[:, ::2]):
        with pytest.raises(terrace.InvalidError, match="out"):
            place["a"].get(slice(1, 3), out=wrong)


def test_an_unlimited_dimension_grows_with_what_is_put(place: terrace.Container) -> None:
    array = place.create_array("a", (0, 3), "i2", unlimited=[0], fill_value=-1)
    assert array.shape == (0, 3) and array[:].shape == (0, 3)
    array[2] = [1, 2, 3]
    array[5:7, 1:] = 9
    assert array.shape == (7, 3)
    assert array[:, 1].tolist() == [-1, -1, 2, -1, -1, 9, 9]
    with pytest.raises(IndexError):
        array[7]
    with pytest.raises(IndexError):
        array[0, 3] = 1
    assert array.append([[4, 5, 6]]) == 7
    assert array.append([7, 8, 9]) == 8
    assert array[-2:].tolist() == [[4, 5, 6], [7, 8, 9]]
    array.grow((20, 3))
    assert len(array) == 20 and (array[9:] == -1).all()
    with pytest.raises(terrace.InvalidError, match="does not grow"):
        array.append([1], axis=1)


@pytest.mark.parametrize("dtype", ["M8[Y]", "M8", "m8[25s]", "g", "O", np.dtype([("x", "f4")])], ids=str)
def test_types_that_arrays_can_not_have_are_refused(place: terrace.Container, dtype) -> None:
    with pytest.raises(terrace.InvalidError, match="can't have cells of type"):
        place.create_array("a", 3, dtype)
    assert "a" not in place


def test_shapes_that_make_no_sense_are_refused(place: terrace.Container) -> None:
    for shape in [(1,) * 9, (-1,), (1 << 40, 1 << 40)]:
        with pytest.raises(terrace.InvalidError):
            place.create_array("a", shape)
    with pytest.raises(terrace.InvalidError, match="dimension 2 can't be unlimited"):
        place.create_array("a", (1, 1), unlimited=[2])
