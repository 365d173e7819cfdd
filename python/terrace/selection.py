"""NumPy's basic indexing as regions.

    index ──▶ Selection: offset, count, stride (ascending)  +  what NumPy does to the result's shape
                         ▼                                      ▼
                  one region of the array               flips, dropped and new axes

A negative step is the ascending region, flipped. Integer arrays and masks are not regions, and are refused.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from .errors import InvalidError, OutOfBoundsError


class Selection(NamedTuple):
    """Cells `offset + i * stride`, `0 <= i < count`, in each dimension, and the form of NumPy's result."""

    offset: tuple[int, ...]
    count: tuple[int, ...]
    stride: tuple[int, ...]
    #: Shape of the result: without the dimensions that an integer chose, with new axes.
    shape: tuple[int, ...]
    #: Axes of the packed cells (of shape `count`) that are to be flipped.
    flipped: tuple[int, ...]

    @property
    def buffer(self) -> tuple[int, ...]:
        """Shape of a buffer for the packed cells. That of an array without dimensions has one: PEP 3118 leaves out a shape of none."""
        return self.count or (1,)

    @property
    def cells(self) -> int:
        """Number of cells."""
        product = 1
        for count in self.count:
            product *= count
        return product

    def result(self, packed: np.ndarray) -> np.ndarray:
        """The cells as NumPy's indexing gives them: a view of `packed`, which has the shape `count`."""
        if self.flipped:
            packed = np.flip(packed, self.flipped)
        return packed.reshape(self.shape)

    def packed(self, values: np.ndarray) -> np.ndarray:
        """Values as they are put: broadcast, of shape `count`, contiguous. Copies only what is not so already."""
        while values.ndim > len(self.shape) and values.shape[0] == 1:
            values = values[0]
        if values.shape != self.shape:
            try:
                values = np.broadcast_to(values, self.shape)
            except ValueError:
                raise InvalidError(
                    f"values of shape {values.shape} do not fit into a selection of shape {self.shape}"
                ) from None
        values = values.reshape(self.count)
        if self.flipped:
            values = np.flip(values, self.flipped)
        return np.ascontiguousarray(values)


def select(index: Any, shape: tuple[int, ...], growing: tuple[bool, ...] | None = None) -> Selection:
    """The selection that an index means in an array of this shape.

    `growing` tells, for a put, which dimensions are unlimited: an index or a slice's stop may then lie beyond the extent.
    """
    parts = index if isinstance(index, tuple) else (index,)
    rank = len(shape)
    given = sum(1 for part in parts if part is not None and part is not Ellipsis)
    ellipses = sum(1 for part in parts if part is Ellipsis)
    if ellipses > 1:
        raise InvalidError("an index can only have a single ellipsis ('...')")
    if given > rank:
        raise OutOfBoundsError(f"too many indices: the array has {rank} dimensions, but {given} were indexed")
    fill = [slice(None)] * (rank - given)
    if not ellipses:
        parts = (*parts, Ellipsis)

    offset: list[int] = []
    count: list[int] = []
    stride: list[int] = []
    result: list[int] = []
    flipped: list[int] = []
    for part in parts:
        if part is None:
            result.append(1)
            continue
        for one in fill if part is Ellipsis else (part,):
            dimension = len(offset)
            extent = shape[dimension]
            may_grow = growing is not None and growing[dimension]
            if isinstance(one, slice):
                first, number, step = _slice(one, extent, may_grow)
                if step < 0:
                    flipped.append(dimension)
                    first, step = first + (number - 1) * step if number else 0, -step
                offset.append(first)
                count.append(number)
                stride.append(step)
                result.append(number)
            else:
                offset.append(_integer(one, dimension, extent, may_grow))
                count.append(1)
                stride.append(1)
    return Selection(tuple(offset), tuple(count), tuple(stride), tuple(result), tuple(flipped))


def _slice(part: slice, extent: int, may_grow: bool) -> tuple[int, int, int]:
    """First cell, number of cells, step."""
    if may_grow and part.stop is not None:
        extent = max(extent, operator.index(part.stop))
    start, stop, step = part.indices(extent)
    return start, len(range(start, stop, step)), step


def _integer(part: Any, dimension: int, extent: int, may_grow: bool) -> int:
    if isinstance(part, (bool, np.bool_)):
        raise InvalidError("a bool is not an index of a region", "get a block as a NumPy array, and index that")
    try:
        number = operator.index(part)
    except TypeError:
        raise InvalidError(
            f"an index of type {type(part).__name__} is not a region",
            "integers, slices, ... and None are; get a block as a NumPy array, and index that",
        ) from None
    if number < 0:
        number += extent
    if number < 0 or (number >= extent and not may_grow):
        given = number - extent if number < 0 else number
        raise OutOfBoundsError(f"index {given} is out of bounds for dimension {dimension}, which has {extent} cells")
    return number
