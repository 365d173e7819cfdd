"""What HDF5's own tests claim of datasets (tselect.c, set_extent.c, fillval.c, dtypes.c, extend.c), said of arrays, against NumPy as the
model: hyperslabs with stride and block, extents that are set, fill values, dimensions without end, partial input and output, types.
"""

from __future__ import annotations

import numpy as np
import pytest

import terrace

TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "S7"]


def some(chance: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    raw = chance.integers(0, 250, shape)
    return raw.astype("S").astype(dtype) if np.dtype(dtype).kind == "S" else raw.astype(dtype)


def hyperslab(chance: np.random.Generator, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], ...]:
    """Start, stride, count and block, as H5Sselect_hyperslab takes them; as one selection for each place in the block."""
    parts = []
    for extent in shape:
        block = int(chance.integers(1, min(3, extent) + 1))
        stride = block + int(chance.integers(0, 4))
        start = int(chance.integers(0, extent - block + 1))
        count = 1 + int(chance.integers(0, max(1, (extent - start - block) // stride + 1)))
        while start + (count - 1) * stride + block > extent:
            count -= 1
        parts.append([slice(start + at, start + at + (count - 1) * stride + 1, stride) for at in range(block)] if count else [])
    found: list[tuple[slice, ...]] = [()]
    for part in parts:
        found = [(*before, one) for before in found for one in part]
    return tuple(found)


@pytest.mark.parametrize("dtype", TYPES)
def test_types_are_written_read_and_made_durable_as_they_are(place, dtype):
    chance = np.random.default_rng(sum(dtype.encode()))
    model = np.zeros((13, 17), dtype)
    array = place.create_array("a", model.shape, dtype, chunks=(5, 6))
    for _ in range(12):
        top, left = (int(chance.integers(0, extent - 1)) for extent in model.shape)
        part = np.s_[top : top + 6, left : left + 7]
        model[part] = some(chance, dtype, model[part].shape)
        array[part] = model[part]
    assert array[...].dtype == model.dtype and np.array_equal(array[...], model)
    place.evict("a")
    assert np.array_equal(array[...], model)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5, 8])
def test_hyperslabs_with_stride_and_block_select_what_they_say(place, rank):
    chance = np.random.default_rng(rank)
    extents = {1: (97,), 2: (23, 31), 3: (9, 10, 11), 4: (5, 6, 7, 8), 5: (4, 5, 3, 6, 4), 8: (3, 2, 4, 2, 3, 2, 2, 3)}
    model = np.zeros(extents[rank], "i4")
    array = place.create_array("a", model.shape, "i4", chunks=tuple(max(1, extent // 3) for extent in model.shape))
    for turn in range(15 if rank < 5 else 4):
        parts = hyperslab(chance, model.shape)
        assert parts
        for part in parts[:200]:
            model[part] = chance.integers(0, 1 << 30, model[part].shape)
            array[part] = model[part]
        # Another hyperslab is read than was written.
        for part in hyperslab(chance, model.shape)[:50]:
            assert np.array_equal(array[part], model[part])
        if turn == 7:
            place.evict("a")
    assert np.array_equal(array[...], model) and model.any()


@pytest.mark.parametrize("fill", [None, -7, 3])
def test_extents_are_set_and_cells_that_are_new_are_the_fill_value(place, fill):
    """set_extent.c: larger and smaller along each dimension, chunks that go and chunks that are cut, with and without a fill value."""
    chance = np.random.default_rng(11)
    model = np.full((12, 10, 8), fill or 0, "i2")
    array = place.create_array("a", model.shape, "i2", chunks=(4, 3, 8), fill_value=fill)
    for turn in range(20):
        shape = tuple(int(n) for n in chance.integers(1, 16, 3))
        array.resize(shape)
        larger = np.full(shape, fill or 0, "i2")
        common = tuple(slice(0, min(pair)) for pair in zip(shape, model.shape))
        larger[common] = model[common]
        model = larger
        assert array.shape == shape and np.array_equal(array[...], model), f"turn {turn}"
        for part in hyperslab(chance, shape)[:3]:
            model[part] = turn + 1
            array[part] = turn + 1
    assert np.array_equal(place.open_array("a", "r")[...], model)


@pytest.mark.parametrize("dtype", TYPES)
def test_fill_values_of_each_type_are_read_where_nothing_was_written(place, dtype):
    value = np.array(b"none" if dtype.startswith("S") else 1 if dtype == "?" else 42).astype(dtype)[()]
    array = place.create_array("a", (9, 9), dtype, fill_value=value, chunks=(4, 4))
    model = np.full((9, 9), value, dtype)
    assert np.array_equal(array[...], model)
    model[3:6, 2] = array[3:6, 2] = some(np.random.default_rng(1), dtype, (3,))
    assert np.array_equal(array[...], model)
    place.evict("a")
    assert np.array_equal(array[...], model) and place.open_array("a").fill_value == value


def test_dimensions_without_end_are_extended_by_what_is_written(place):
    """extend.c and tunlimited: all dimensions grow, written out of order, with holes."""
    chance = np.random.default_rng(2)
    array = place.create_array("a", (0, 0, 0), "f8", unlimited=[0, 1, 2], chunks=(3, 4, 5), fill_value=-1)
    model = np.zeros((0, 0, 0))
    assert array.shape == (0, 0, 0) and array[...].size == 0
    for turn in range(25):
        start = chance.integers(0, 12, 3)
        count = chance.integers(1, 5, 3)
        part = tuple(slice(int(s), int(s + c)) for s, c in zip(start, count))
        shape = tuple(max(extent, one.stop) for extent, one in zip(model.shape, part))
        larger = np.full(shape, -1.0)
        larger[tuple(map(slice, model.shape))] = model
        model = larger
        model[part] = turn
        array[part] = turn
        assert array.shape == shape
        if turn % 8 == 3:
            place.evict("a")
    assert np.array_equal(array[...], model)


def test_selections_of_nothing_and_beyond_the_extent(place):
    array = place.create_array("a", (6, 6), "i4")
    array[...] = 1
    array[3:3] = np.zeros((0, 6))
    array[2:5, 4:4] = 5
    assert array[0:0].shape == (0, 6) and array[:, 6:].shape == (6, 0)
    assert np.array_equal(array[...], np.ones((6, 6)))
    for bad in (np.s_[6], np.s_[0, 6], np.s_[-7], np.s_[0, 0, 0]):
        with pytest.raises(IndexError if bad != np.s_[0, 0, 0] else (IndexError, terrace.TerraceError)):
            array[bad]


def test_partial_output_into_part_of_a_buffer_of_the_program(place):
    """A memory space: every second cell of a buffer, and the inside of one with a halo."""
    array = place.create_array("a", (8, 9), "u2", chunks=(3, 3))
    halo = np.arange(10 * 11, dtype="u2").reshape(10, 11)
    array[...] = halo[1:-1, 1:-1]
    assert np.array_equal(array[...], halo[1:-1, 1:-1])
    array[::2, 1::3] = halo[0:4, 0:9:3]
    halo[1:-1, 1:-1][::2, 1::3] = halo[0:4, 0:9:3].copy()
    assert np.array_equal(array[...], halo[1:-1, 1:-1])
