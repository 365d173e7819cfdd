"""Arrays, regions of them, and locks on regions."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _native
from .errors import InvalidError, NotFoundError
from .keepers import Keepers, host_of
from .selection import Selection, select
from .tags import Tags
from .transfer import Transfer
from .values import Where, block_of

if TYPE_CHECKING:
    from .container import Session

LockMode = Literal["read", "write"]

#: Takes the cells of a region, as an ndarray of its shape, and the region as slices; gives what is put, or got, instead (None: the
#: ndarray itself, which it may have changed).
Hook = Callable[[np.ndarray, tuple[slice, ...]], "np.ndarray | None"]

#: A cell that no array has: appends along an axis exclude each other by a lock on it.
_APPEND_TOKEN = 1 << 61

#: What times are counted in, as in NumPy's names of their types.
_TIME_UNITS = ("[D]", "[h]", "[m]", "[s]", "[ms]", "[us]", "[ns]")


def data_type_name(dtype: Any) -> str:
    """Terrace's name of a NumPy type. Raises InvalidError for types that arrays can't have."""
    dtype = np.dtype(dtype)
    if dtype.kind == "S":
        return f"S{max(1, dtype.itemsize)}"
    if dtype.kind == "U":
        return f"U{max(1, dtype.itemsize // 4)}"
    is_number = dtype.kind in "biufc" and dtype.itemsize <= 16 and dtype.name not in ("longdouble", "float128")
    is_time = dtype.kind in "mM" and dtype.name[dtype.name.find("[") :] in _TIME_UNITS
    if is_number or is_time:
        return dtype.name
    raise InvalidError(
        f"an array can't have cells of type {dtype}",
        "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, S12 for strings of 12 bytes, U12 for strings of"
        " 12 characters, datetime64 and timedelta64 in D, h, m, s, ms, us or ns",
    )


def exported(cells: np.ndarray) -> np.ndarray:
    """The same memory, as NumPy lets others have it: it exports no buffers of times, but of the numbers that they are."""
    return cells.view(np.int64) if cells.dtype.kind in "mM" else cells


class Lock:
    """A held lock on a region. Released by `release`, at the end of a `with` block, or when its process ends."""

    __slots__ = ("_native", "mode")

    def __init__(self, native: _native.Lock, mode: str) -> None:
        self._native = native
        self.mode = mode

    @property
    def is_held(self) -> bool:
        return self._native.is_held

    def release(self) -> None:
        """Lets others have the region. Releasing twice is allowed."""
        self._native.release()

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<terrace.Lock for {self.mode}, {'held' if self.is_held else 'released'}>"


class Array:
    """An n-dimensional array that several processes put regions into and get regions from.

    Indexing is NumPy's basic indexing: integers, slices with steps of either sign, `...` and `None`. Reading gives a new
    ndarray; what is put is seen by every process when the call returns, and survives a kill of any of them. Cells are copied
    once, between the tier's memory and NumPy's, without Python's lock. Cells that were never put read as `fill_value`.

    An index or a slice's stop beyond the extent of an unlimited dimension makes it grow; in other dimensions slices are cut
    off as NumPy does, and an integer out of bounds is an OutOfBoundsError.
    """

    def __init__(self, session: "Session", native: _native.Array, name: str) -> None:
        self._session = session
        self._native = native
        self.name = name
        spec = native.spec()
        #: NumPy's type of the cells.
        self.dtype = np.dtype(spec["dtype"])
        #: Which dimensions grow.
        self.unlimited: tuple[bool, ...] = spec["unlimited"]
        #: Cells of one chunk of the durable form, in each dimension.
        self.chunks: tuple[int, ...] = spec["chunks"]
        #: Names of the dimensions; empty if they have none.
        self.dimensions: tuple[str, ...] = spec["dimensions"]
        self.placement: str = spec["placement"]
        self._fill: bytes = spec["fill"]
        #: What cells read as that were never put.
        self.fill_value = np.frombuffer(self._fill, self.dtype)[0]
        self.ndim = len(self.unlimited)
        self._shape: tuple[int, ...] = spec["shape"]
        self._hooks: dict[str, list[Hook]] = {"put": [], "get": []}

    @property
    def session(self) -> "Session":
        return self._session

    @property
    def shape(self) -> tuple[int, ...]:
        """As it is now: unlimited dimensions grow with what anybody puts, and anybody may resize it."""
        try:
            self._shape = self._native.shape
        except NotFoundError:
            # It was removed: what is done with its cells says so.
            if any(self.unlimited):
                raise
        return self._shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_writable(self) -> bool:
        return self._native.is_writable

    @property
    def tags(self) -> Tags:
        return Tags(self._session._native, self.name)

    def __bool__(self) -> bool:
        """An array is there, whatever it has: one of no cells, too."""
        return True

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"`{self.name}` has one cell and no dimensions, so it has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self.get(index)

    def __setitem__(self, index: Any, values: Any) -> None:
        self.put(index, values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the cells of a terrace.Array can't be had without a copy")
        cells = np.asarray(self.get(...))
        return cells if dtype is None else cells.astype(dtype, copy=False)

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def _buffer(self, selection: Selection, out: np.ndarray | None) -> tuple[np.ndarray, Any]:
        """Where the packed cells go, and what the caller gets."""
        if out is None:
            packed = np.empty(selection.buffer, self.dtype)
            return packed, selection.result(packed)
        if out.shape != selection.shape or out.dtype != self.dtype:
            raise InvalidError(
                f"`out` is {out.dtype} of shape {out.shape}; the selection is {self.dtype} of shape {selection.shape}"
            )
        if selection.flipped or not out.flags.c_contiguous or not out.flags.writeable:
            raise InvalidError(
                "`out` can't be read into where it is",
                "give a writable, C-contiguous array, and no negative step",
            )
        return out.reshape(selection.buffer), out

    def get(self, index: Any = ..., out: np.ndarray | None = None) -> Any:
        """The cells of a selection, as an ndarray of its shape (a scalar, where every dimension has an integer).

        `out`: a C-contiguous array of the selection's shape and the array's type, that is read into and returned.
        """
        selection = select(index, self.shape)
        packed, result = self._buffer(selection, out)
        if packed.size:
            self._native.get(selection.offset, selection.count, selection.stride, exported(packed))
            if self._hooks["get"]:
                packed[...] = self._hooked("get", selection, packed)
        return result[()] if out is None and not selection.shape else result

    def _values(self, index: Any, values: Any) -> tuple[Selection, np.ndarray]:
        selection = select(index, self.shape, self.unlimited)
        if isinstance(values, np.generic):
            cell = np.empty((), self.dtype)
            cell[()] = values
            values = cell
        # At once into the cells' type: a list of numbers might be floats on its way.
        packed = selection.packed(np.asarray(values, self.dtype))
        return selection, self._hooked("put", selection, packed)

    def _hooked(self, when: str, selection: Selection, packed: np.ndarray) -> np.ndarray:
        if not self._hooks[when] or not packed.size:
            return packed
        # What is put is the caller's: functions change a copy.
        cells = np.array(packed).reshape(selection.count)
        region = tuple(
            slice(o, o + (c - 1) * s + 1, s) for o, c, s in zip(selection.offset, selection.count, selection.stride)
        )
        for function in self._hooks[when]:
            given = function(cells, region)
            if given is not None:
                given = np.asarray(given)
                if given.shape != cells.shape:
                    raise InvalidError(f"a function gave cells of shape {given.shape} for a region of shape {cells.shape}")
                cells = given
        return np.ascontiguousarray(cells, self.dtype)

    def hook(self, when: Literal["put", "get"], function: Hook) -> Hook:
        """Applies a function to each region that is put, or got, by this Array, after those that were added before.

        It takes the cells as an ndarray and the region as slices, and gives what is put, or got, instead; or None, and may change the
        ndarray. What it raises ends the call, and nothing is put. Others put and get as they did; `locked` applies none. A transfer's
        functions are applied when it is started; `start_get` then brings the cells at once.
        """
        if when not in self._hooks:
            raise InvalidError(f"`{when}` is not one of: put, get")
        self._hooks[when].append(function)
        return function

    def hook_library(self, when: Literal["put", "get"], library: str | os.PathLike[str], function: str) -> None:
        """Applies a function of a shared library, by its name; its type is that of terrace_array_hook in terrace.h."""
        if when not in self._hooks:
            raise InvalidError(f"`{when}` is not one of: put, get")
        self._native.hook_library(when == "put", library, function)

    def unhook(self) -> None:
        """No function is applied any more."""
        for functions in self._hooks.values():
            functions.clear()
        self._native.unhook()

    def where(self, comparison: str) -> Where:
        """Asks for the cells that are "> 3.5" (also <, <=, >=, =, !=). Join questions by `&` and `|`, ask by `select()`."""
        return Where(_native.Where(self._native, comparison), self.shape)

    def histogram(
        self, bins: int = 10, range: tuple[float, float] | None = None, index: Any = ...
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many cells lie in each bin, and the bins' edges, as `numpy.histogram`; NaN, and what lies outside, is in none."""
        low, high, counts = _native.histogram(self._native, block_of(index, self.shape), bins, range)
        return np.array(counts, np.uint64), np.linspace(low, high, bins + 1)

    def put(self, index: Any, values: Any) -> None:
        """Puts values, broadcast to the selection. Contiguous values of the array's own type are not copied before."""
        selection, packed = self._values(index, values)
        if packed.size:
            self._native.put(selection.offset, selection.count, selection.stride, exported(packed))

    def start_get(self, index: Any = ..., out: np.ndarray | None = None) -> Transfer:
        """Starts a get and returns at once; `result()` of the transfer has the cells."""
        selection = select(index, self.shape)
        packed, result = self._buffer(selection, out)
        if self._hooks["get"] and packed.size:
            return Transfer(None, self.get(index, out))
        if not packed.size:
            return Transfer(None, result)
        native = self._native.start(False, selection.offset, selection.count, selection.stride, exported(packed))
        return Transfer(native, result)

    def start_put(self, index: Any, values: Any) -> Transfer:
        """Starts a put and returns at once. The values must not be changed before the transfer is done; they are kept alive
        until then. Overlapping transfers of one process take effect in the order in which they were started.
        """
        selection, packed = self._values(index, values)
        if not packed.size:
            return Transfer(None, None)
        return Transfer(self._native.start(True, selection.offset, selection.count, selection.stride, exported(packed)), None)

    def lock(self, index: Any = ..., mode: LockMode = "write", timeout: float | None = None) -> Lock:
        """Locks a selection's region against overlapping locks of all processes: "read" is shared, "write" is alone.

        Waits so many seconds (None: as long as it takes; 0: not at all), then raises BusyError. Ctrl-C ends the wait.
        Locks are advice: who does not lock is not kept out.
        """
        selection = select(index, self.shape, self.unlimited)
        native = self._native.lock(selection.offset, selection.count, selection.stride, mode, timeout)
        return Lock(native, mode)

    @contextlib.contextmanager
    def locked(self, index: Any = ..., mode: LockMode = "write", timeout: float | None = None) -> Iterator[np.ndarray]:
        """A selection's cells under a lock, as an ndarray; at the end of the block of a "write" lock it is put back.

        An exception in the block puts nothing back. Cells beyond what an unlimited dimension has yet are the fill value.
        """
        selection = select(index, self.shape, self.unlimited)
        with Lock(self._native.lock(selection.offset, selection.count, selection.stride, mode, timeout), mode):
            packed = np.full(selection.buffer, self.fill_value, self.dtype)
            ends = [o + (c - 1) * s + 1 for o, c, s in zip(selection.offset, selection.count, selection.stride)]
            if packed.size and all(end <= extent for end, extent in zip(ends, self.shape)):
                self._native.get(selection.offset, selection.count, selection.stride, exported(packed))
            yield selection.result(packed)
            if mode == "write" and packed.size:
                self._native.put(selection.offset, selection.count, selection.stride, exported(packed))

    def append(self, values: Any, axis: int = 0) -> int:
        """Puts values behind the last cells of an unlimited axis; where they went. Appends of several processes don't
        overlap.
        """
        if not self.ndim:
            raise InvalidError(f"`{self.name}` has one cell and no dimensions: nothing of it grows")
        axis = range(self.ndim)[axis]
        if not self.unlimited[axis]:
            raise InvalidError(
                f"dimension {axis} of `{self.name}` does not grow",
                "say so when the array is created: unlimited=[0]",
            )
        values = np.asarray(values, self.dtype)
        if values.ndim == self.ndim - 1:
            values = np.expand_dims(values, axis)
        token = [0] * self.ndim
        token[axis] = _APPEND_TOKEN
        with Lock(self._native.lock(token, [1] * self.ndim, [1] * self.ndim, "write", None), "write"):
            start = self.shape[axis]
            index: list[Any] = [slice(None)] * self.ndim
            index[axis] = slice(start, start + values.shape[axis])
            self.put(tuple(index), values)
        return start

    def grow(self, shape: tuple[int, ...]) -> None:
        """Makes unlimited dimensions larger without putting anything."""
        self._native.grow(shape)

    def resize(self, shape: tuple[int, ...]) -> None:
        """Gives the array any shape of the same rank, also a smaller one, and also where dimensions are not unlimited.

        What is cut off is gone: where the array grows again it has the fill value. It is made durable for it, and dropped from the tiers.
        """
        self._native.resize(shape)

    def flush(self) -> None:
        """Makes the array durable in the root, as a Zarr v3 array."""
        self._native.flush()

    def evict(self) -> None:
        """Frees the faster tiers of it, flushing first what is not durable."""
        self._session._native.evict(self.name)

    def _keepers(self) -> Keepers:
        native = self._native
        hosts = tuple(host_of(address) for address in self._session.agents) or ("",)
        return Keepers(hosts, native.spreading, native.keeper, self.chunks)

    def _grid(self) -> tuple[int, ...]:
        return tuple(-(-extent // chunk) for extent, chunk in zip(self.shape, self.chunks))

    def keepers(self) -> np.ndarray:
        """The number of the agent that keeps each chunk, in an ndarray of uint32 with the shape of the grid of chunks, as the array is now.

        A chunk has one agent for as long as the agents run; `session.agents` has their addresses. All are 0 where a root has one agent.
        Raises NotFoundError when the array was removed and has unlimited dimensions.
        """
        return self._keepers().of_block((0,) * self.ndim, self._grid())

    def hosts(self) -> np.ndarray:
        """The host of the agent that keeps each chunk, as its address says, in an ndarray of str with the shape of `keepers()`.

        "" is the agent of this node, where a root has one that listens nowhere. Raises as `keepers` does.
        """
        keepers = self._keepers()
        return np.asarray(np.array(keepers.hosts)[keepers.of_block((0,) * self.ndim, self._grid())])

    def staged_regions(self) -> list[tuple[tuple[slice, ...], int]]:
        """Regions that are staged, as slices, oldest first, and the bytes of each; the durable form lies below them."""
        return [
            (tuple(slice(o, o + (c - 1) * s + 1, s) for o, c, s in zip(offset, count, stride)), size)
            for offset, count, stride, size in self._native.staged_regions()
        ]

    def __reduce__(self):
        return _open, (self._session, self.name, self.is_writable)

    def __repr__(self) -> str:
        return f"<terrace.Array `{self.name}`, {self.dtype} of shape {self.shape}>"


def _open(session: "Session", name: str, is_writable: bool) -> Array:
    return Array(session, session._native.open_array(name, is_writable), name)
