"""The same transfers by h5py: into a file of the memory tier, and 256 MB to the durable storage. Prints one JSON object."""

import json
import os
import sys
import time

import h5py
import numpy

BATCHES = 7


def median(act):
    act()
    times = []
    for _ in range(BATCHES):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return sorted(times)[BATCHES // 2]


def transfers(directory):
    results = []
    for size in (4 << 10, 1 << 20, 64 << 20):
        path = os.path.join(directory, "measure.h5")
        source, target = numpy.full(size, 3, "u1"), numpy.empty(size, "u1")
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset("cells", (size,), "u1")

            def put():
                dataset.write_direct(source)

            def get():
                dataset.read_direct(target)

            put_s, get_s = median(put), median(get)
        os.unlink(path)
        results.append({"bytes": size, "put_gb_s": round(size / put_s / 1e9, 2), "get_gb_s": round(size / get_s / 1e9, 2)})
    return results


def durable(directory):
    """Seconds that a program waits for 256 MB on the durable storage, closed and synced."""
    cells = numpy.ones(256 << 20, "u1")
    path = os.path.join(directory, "durable.h5")

    def write():
        with h5py.File(path, "w") as file:
            file.create_dataset("cells", data=cells)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    seconds = median(write)
    os.unlink(path)
    return seconds


if __name__ == "__main__":
    tier, root = sys.argv[1:]
    print(json.dumps({"h5py": h5py.__version__, "tier": transfers(tier), "durable_256mb_ms": round(durable(root) * 1e3, 1)}))
