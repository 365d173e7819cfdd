"""Dask arrays whose chunks are read, and written, on the hosts that keep them.

    array = terrace.connect()["study/temperature"]
    terrace.dask.from_array(array).mean(axis=0).compute()
    terrace.dask.store(result, session.create_array("study/mean", result.shape, result.dtype))

A root with several agents spreads an array's chunks over their nodes. Where Dask's workers run on these nodes, each task that reads chunks
goes to a worker on the host of the agent that keeps most of its cells, if there is one; its worker uses that agent's memory.

How: Dask's own word for it is the annotation `workers`, but it fuses layers of a graph into tasks of other names, and forgets what layers
were annotated with (`dask.array.optimize`). So this module places tasks after they were fused: it puts a step of its own behind Dask's
optimization of arrays. Dask runs that on its scheduler, which needs no agent for it: an array's chunks are placed by arithmetic.
"""

from __future__ import annotations

import functools
import pickle
import socket
import sys
import uuid
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dask.array
import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef, _execute_subgraph
from dask.array.core import dont_optimize, load_store_chunk
from dask.array.optimization import GETTERS, fuse_slice
from dask.array.optimization import optimize as optimize_arrays
from dask.context import globalmethod
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from .array import Array
from .errors import TerraceError
from .selection import select

#: Arrays that a worker has open at a time.
_OPEN_MAX = 64


class Deferred:
    """An array in a graph: opened by each process whose tasks need it, with the agent of that process's node."""

    def __init__(self, array: Array, allow_other_workers: bool = True) -> None:
        self.name = f"terrace-{uuid.uuid4().hex}"
        self.shape, self.dtype, self.ndim, self.chunks = array.shape, array.dtype, array.ndim, array.chunks
        self.allow_other_workers = allow_other_workers
        self._array = pickle.dumps(array)
        self._keepers = array._keepers()

    def __getitem__(self, index: Any) -> Any:
        block, within = _block(index)
        cells = _opened(self.name, self._array)[block]
        return cells if within is None else cells[within]

    def __setitem__(self, index: Any, values: Any) -> None:
        _opened(self.name, self._array)[index] = values

    def cells_by_host(self, index: Any) -> dict[str, int]:
        return self._keepers.cells_by_host(select(_block(index)[0], self.shape, (True,) * self.ndim))

    def __repr__(self) -> str:
        return f"<{self.name}, {self.dtype} of shape {self.shape}>"


def _block(index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Dask fuses a list of indices into what is read, which no region is: the block that has them, and where in it they are."""
    block: list[Any] = []
    within: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, (list, np.ndarray)):
            places = np.asarray(part, np.int64)
            begin, end = (int(places.min()), int(places.max()) + 1) if places.size else (0, 0)
            block.append(slice(begin, end))
            within.append(places - begin)
        else:
            block.append(part)
            if not isinstance(part, (int, np.integer)):
                within.append(slice(None))
    return tuple(block), tuple(within) if any(isinstance(part, np.ndarray) for part in within) else None


@functools.lru_cache(_OPEN_MAX)
def _opened(name: str, array: bytes) -> Array:
    """The name tells apart arrays that had one name one after the other."""
    return pickle.loads(array)


def from_array(array: Array, chunks: Any = None, *, allow_other_workers: bool = True) -> dask.array.Array:
    """A dask.array.Array of a Terrace array, of the shape that it has now.

    chunks: as `dask.array.from_array` takes it; None: the array's own. Chunks of Dask that are one of the array's, or few of one host, make
        all reads local.
    allow_other_workers: whether workers elsewhere may read a chunk: those that are idle, or all where no worker runs on the host that has it.
        If not, the chunk waits for one there.

    A worker is on an agent's host if it listens on the agent's address (`dask worker --host`). `workers=` of `Client.compute` does not hold
    for the tasks that read: say `dask.array.from_array(array, array.chunks)` to choose yourself.
    """
    source = Deferred(array, allow_other_workers)
    chunks = array.chunks if chunks is None else chunks
    meta = np.empty((0,) * array.ndim, array.dtype)
    return dask.array.from_array(source, chunks, name=source.name, inline_array=True, meta=meta)


def store(sources: Any, targets: Array | Sequence[Array], *, allow_other_workers: bool = True, **options: Any) -> Any:
    """Puts Dask arrays into Terrace arrays of their shapes, as `dask.array.store` does, with its options; each task where its chunk is kept.

    Without a lock, unless one is given: puts into one chunk don't overwrite each other's cells.
    """
    several = isinstance(targets, Sequence)
    deferred = [Deferred(target, allow_other_workers) for target in (targets if several else [targets])]
    return dask.array.store(sources, deferred if several else deferred[0], **{"lock": False, **options})


def optimize(graph: Any, keys: Any, **options: Any) -> Any:
    """As `dask.array.optimize`; then tasks that read or write chunks of Terrace arrays get workers on the hosts that have them."""
    graph = optimize_arrays(graph, keys, **options)
    layers = graph.layers if isinstance(graph, HighLevelGraph) else {"": graph}
    placed: dict[str, MaterializedLayer] = {}
    known: dict[int, Deferred | None] = {}
    for name, layer in layers.items():
        annotations = getattr(layer, "annotations", None) or {}
        rest = dict(layer)
        by_workers: dict[tuple[bool, str], dict[Any, Any]] = defaultdict(dict)
        for key, task in layer.items() if "workers" not in annotations else ():
            if workers := _workers(task, graph, known):
                by_workers[workers][key] = rest.pop(key)
        for (others, host), tasks in by_workers.items():
            placed[f"{name}-{host}-{uuid.uuid4().hex}"] = MaterializedLayer(
                tasks, annotations={**annotations, "workers": [host], "allow_other_workers": others}
            )
        placed[f"{name}-{uuid.uuid4().hex}"] = MaterializedLayer(rest, annotations=annotations)
    if len(placed) == len(layers):
        return graph
    return HighLevelGraph(placed, {name: set() for name in placed})


def _workers(task: Any, graph: Mapping[Any, Any], known: dict[int, Deferred | None]) -> tuple[bool, str] | None:
    """Whether others may do the task, and the host that has most of its bytes."""
    bytes_by_host: Counter[str] = Counter()
    may_others = True
    try:
        for source, index in _accesses(task, graph, known):
            may_others &= source.allow_other_workers
            for host, cells in source.cells_by_host(index).items():
                bytes_by_host[host] += cells * source.dtype.itemsize
    except (TerraceError, NotImplementedError):
        return None  # an index that can't be, or no agent to ask: the task itself says what is wrong
    del bytes_by_host[""]
    if not bytes_by_host:
        return None
    return may_others, _address(bytes_by_host.most_common(1)[0][0])


@functools.cache
def _address(host: str) -> str:
    """Dask knows hosts by addresses."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _accesses(task: Any, values: Mapping[Any, Any], known: dict[int, Deferred | None]) -> Iterator[tuple[Deferred, Any]]:
    """Arrays that a task reads from or writes into, and where. `known`: what was found out of sources that live meanwhile."""
    if not isinstance(task, Task):
        return
    if task.func is _execute_subgraph:
        within, _, names, *given = task.args
        # What is given may be named as outside.
        inner = ChainMap(within, {name: _value(node, values) for name, node in zip(names, given)}, values)
        for one in within.values():
            yield from _accesses(one, inner, known)
        return
    source, index = None, None
    if task.func in GETTERS:
        source, index = task.args[:2]
    elif task.func is load_store_chunk:
        source, index = task.args[1:3]
    source, index = _value(source, values), _value(index, values)
    if region := _value(task.kwargs.get("region"), values):
        index = fuse_slice(region, index)
    if not isinstance(source, Deferred):
        if id(source) not in known:
            known[id(source)] = _array_of_store(source)
        source = known[id(source)]
    if source is not None:
        yield source, index


def _array_of_store(source: Any) -> Deferred | None:
    """The array that zarr-python, or xarray over it, reads chunks of from a `TerraceStore`."""
    stores = sys.modules.get("terrace.zarr")
    if stores is None:
        return None
    shape = getattr(source, "shape", None)
    while hasattr(source, "array"):  # xarray's: each says something of the one in it
        source = source.array
    source = source.get_array() if hasattr(source, "get_array") else source
    store = getattr(source, "store", None)
    # One of another shape has been indexed.
    if not isinstance(store, stores.TerraceStore) or source.shape != shape:
        return None
    array = store.array(source.path)
    return None if array is None else Deferred(array)


def _value(node: Any, values: Mapping[Any, Any]) -> Any:
    """What a reference leads to; None: a result that is not there yet."""
    seen: set[Any] = set()
    while isinstance(node, (TaskRef, Alias)):
        key = node.key if isinstance(node, TaskRef) else node.target
        if key in seen:
            return None
        seen.add(key)
        node = values.get(key)
    return node.value if isinstance(node, DataNode) else node


# `array_optimize` of Dask's configuration would be the place for it, but clusters send the configuration to workers as JSON (SSHCluster).
dask.array.Array.__dask_optimize__ = globalmethod(optimize, key="array_optimize", falsey=dont_optimize)
