"""Questions about values: which cells of arrays of one shape meet comparisons, joined by `&` and `|`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from .errors import InvalidError
from .selection import select

if TYPE_CHECKING:
    from .array import Array


def block_of(index: Any, shape: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
    """Offset and count of a selection without steps."""
    if index is ...:
        return None
    selection = select(index, shape)
    if any(stride != 1 and count > 1 for stride, count in zip(selection.stride, selection.count)) or selection.flipped:
        raise InvalidError("cells are selected in blocks, without steps")
    return list(selection.offset), list(selection.count)


class Where:
    """A question that each cell answers with yes or no: `array.where("> 3.5") & other.where("= 7")`."""

    __slots__ = ("_native", "_shape")

    def __init__(self, native: _native.Where, shape: tuple[int, ...]) -> None:
        self._native = native
        self._shape = shape

    def __and__(self, other: "Where") -> "Where":
        return Where(self._native.both(other._native), self._shape)

    def __or__(self, other: "Where") -> "Where":
        return Where(self._native.either(other._native), self._shape)

    def __bool__(self) -> bool:
        raise InvalidError("a question has no truth of its own", "join questions by & and |, and ask by select()")

    def select(self, index: Any = ...) -> "Selected":
        """The cells that meet it, of whole arrays or of a block of them. All its arrays have one shape."""
        return Selected(self._native.select(block_of(index, self._shape)))


class Selected:
    """Cells that have met a question, in C order."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Selected) -> None:
        self._native = native

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the arrays, when they were asked."""
        return self._native.shape

    def __len__(self) -> int:
        return self._native.count

    @property
    def positions(self) -> np.ndarray:
        """Of each cell in the array as it lies flat."""
        found = np.empty(self._native.count, np.uint64)
        if found.size:
            self._native.positions_into(found)
        return found

    @property
    def coordinates(self) -> tuple[np.ndarray, ...]:
        """As `numpy.nonzero` gives them: an index array for each dimension."""
        return np.unravel_index(self.positions.astype(np.intp), self.shape)

    def data(self, array: "Array") -> np.ndarray:
        """The cells of an array of this shape there, as they are now."""
        found = np.empty(self._native.count, array.dtype)
        if found.size:
            self._native.data_into(array._native, found)
        return found

    def __repr__(self) -> str:
        return f"<terrace.Selected, {len(self)} cells of shape {self.shape}>"
