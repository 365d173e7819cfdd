"""Which agent keeps which chunk of an array, where a root has several.

It is arithmetic (`crates/core/src/objects/spreading.rs`), so whoever has been told of an array once needs no
connection to say it: a Dask scheduler, for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import _native
from .selection import Selection


@dataclass(frozen=True)
class Keepers:
    #: Of each agent; "" of one that listens nowhere, for programs of its own node.
    hosts: tuple[str, ...]
    #: What says which agent keeps which chunk: the array's own pattern, that of arrays like it, and how many chunks a step has.
    spreading: tuple[int, int, int]
    #: The agent that keeps all of it; None: chunk by chunk, all do.
    only: int | None
    chunks: tuple[int, ...]

    def of_block(self, first: Sequence[int], count: Sequence[int]) -> np.ndarray:
        """Agents' numbers, of the chunks of a block of the grid, in its shape."""
        if self.only is not None:
            return np.full(count, self.only, np.uint32)
        return np.array(_native.keepers(self.spreading, len(self.hosts), first, count), np.uint32).reshape(count)

    def cells_by_host(self, selection: Selection) -> dict[str, int]:
        """How many cells of a selection each host has, of those that have any."""
        if 0 in selection.count:
            return {}
        places = [
            (offset + stride * np.arange(count)) // chunk
            for offset, count, stride, chunk in zip(selection.offset, selection.count, selection.stride, self.chunks)
        ]
        first = [int(place[0]) for place in places]
        of_chunks = np.ones((), np.int64)
        for place, begin in zip(places, first):
            of_chunks = np.multiply.outer(of_chunks, np.bincount(place - begin))
        numbers = self.of_block(first, of_chunks.shape)
        by_host: dict[str, int] = {}
        for number in np.unique(numbers):
            host = self.hosts[number]
            by_host[host] = by_host.get(host, 0) + int(of_chunks[numbers == number].sum())
        return by_host


def host_of(address: str) -> str:
    """Of ADDRESS:PORT."""
    return address.rpartition(":")[0].strip("[]")
