"""The same operations by h5py, as a worker of compare.py: `hdf5.py DIRECTORY`; a line in, nanoseconds of one operation out."""

from __future__ import annotations

import os
import pathlib
import sys
import time
from collections.abc import Callable

import h5py
import numpy as np

BATCH_S = 0.06
BLOCK = 2880
NEW_BLOCKS = 2000
LARGE = 256 << 20


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    count, step = 0, 1
    while True:
        for _ in range(step):
            act()
        count += step
        elapsed = time.perf_counter() - begun
        if elapsed >= BATCH_S:
            return elapsed / count * 1e9
        step = max(1, int(count * 0.001 / max(elapsed, 1e-9)))


class Worker:
    """Keeps one file with a dataset of each size open."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self.file = h5py.File(directory / "cells.h5", "w")
        self.cells: dict[int, tuple[h5py.Dataset, np.ndarray, np.ndarray]] = {}

    def sized(self, size: int) -> tuple[h5py.Dataset, np.ndarray, np.ndarray]:
        if size not in self.cells:
            dataset = self.file.create_dataset(f"cells{size}", (size,), "u1")
            source, target = np.full(size, 3, "u1"), np.full(size, 5, "u1")
            for _ in range(3):
                dataset.write_direct(source)
                dataset.read_direct(target)
            assert (target == source).all()
            self.cells[size] = dataset, source, target
        return self.cells[size]

    def act(self, operation: str, size: int) -> float:
        if operation in ("put", "get"):
            dataset, source, target = self.sized(size)
            return timed(lambda: dataset.write_direct(source) if operation == "put" else dataset.read_direct(target))
        return getattr(self, operation.replace("-", "_"))()

    def append_new(self) -> float:
        """Blocks appended to a dataset that grows, in chunks of 1 MiB."""
        block = np.full(BLOCK, 7, "u1")
        with h5py.File(self.directory / "table.h5", "w") as file:
            begun = time.perf_counter()
            table = file.create_dataset("table", (0,), "u1", maxshape=(None,), chunks=(1 << 20,))
            for number in range(NEW_BLOCKS):
                table.resize(((number + 1) * BLOCK,))
                table[number * BLOCK :] = block
            file.flush()
            return (time.perf_counter() - begun) / NEW_BLOCKS * 1e9

    def create(self) -> float:
        with h5py.File(self.directory / "created.h5", "w") as file:
            numbers = iter(range(1 << 30))
            return timed(lambda: file.create_dataset(str(next(numbers)), (100, 100), "f8"))

    def open(self) -> float:
        self.file.require_dataset("calls", (100, 100), "f8")
        return timed(lambda: self.file["calls"])

    def stat(self) -> float:
        self.file.require_dataset("calls", (100, 100), "f8")
        return timed(lambda: (self.file["calls"].shape, self.file["calls"].dtype))

    def _large(self, syncs: bool) -> float:
        cells = np.ones(LARGE, "u1")
        path = self.directory / "large.h5"
        begun = time.perf_counter()
        with h5py.File(path, "w") as file:
            file.create_dataset("cells", data=cells)
        if syncs:
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        seconds = time.perf_counter() - begun
        path.unlink()
        return seconds * 1e9

    def large(self) -> float:
        return self._large(False)

    def large_synced(self) -> float:
        return self._large(True)


def main() -> None:
    worker = Worker(pathlib.Path(sys.argv[1]))
    for line in sys.stdin:
        operation, size = (line.split() + ["0"])[:2]
        print(f"{worker.act(operation, int(size)):.1f}", flush=True)


if __name__ == "__main__":
    main()
