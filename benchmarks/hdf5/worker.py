"""Writes 256 MB by h5py into one file, as often as a line on the standard input says: LAYOUT WAY, and answers with seconds.

`sees`: until the file is closed. `durable`: until it is on the durable tier as well.
"""

import os
import subprocess
import sys
import time

import h5py
import numpy as np

# How a file is made durable: `terrace flush` with the run's settings. Natively nothing.
terrace = sys.argv[1:]
STEPS, SHAPE = 64, (500, 1000)
cells = np.random.default_rng(1).random((STEPS, *SHAPE))
# Memory and library are touched before.
with h5py.File("first.h5", "w") as file:
    file["first"] = cells[:2]
os.remove("first.h5")
print("ready", flush=True)
for line in sys.stdin:
    layout, way = line.split()
    begun = time.perf_counter()
    with h5py.File("written.h5", "w") as file:
        if layout == "contiguous":
            dataset = file.create_dataset("cells", cells.shape, cells.dtype)
        else:
            dataset = file.create_dataset("cells", (0, *SHAPE), cells.dtype, maxshape=(None, *SHAPE), chunks=(1, *SHAPE))
        for step in range(STEPS):
            if layout == "chunked":
                dataset.resize(step + 1, axis=0)
            dataset[step] = cells[step]
    if way == "durable":
        if terrace:
            said = subprocess.run([*terrace, "written.h5"], check=True, capture_output=True, text=True).stdout
            assert said.startswith("flushed 1 files"), said
        else:
            descriptor = os.open("written.h5", os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    print(time.perf_counter() - begun, flush=True)
    with h5py.File("written.h5") as file:
        assert np.array_equal(file["cells"][-1], cells[-1])
    os.remove("written.h5")
