"""Opens a file again in several ways; each time its arrays say what it says. Argument: a Python that knows nothing of the connector."""

import os
import subprocess
import sys

import h5py
import numpy as np
import terrace
from compare import compare

session = terrace.connect()


def held(file, missing=False):
    return compare(session, file, "again.h5", missing)


with h5py.File("again.h5", "w") as file:
    file.create_dataset("steps", (2, 3), "i4", maxshape=(None, 3), data=np.ones((2, 3)))
    file["once"] = np.arange(5)
    assert held(file) == 2
# Appended to: what was there is not read again, so both arrays are still there.
for count in (3, 4):
    with h5py.File("again.h5", "a") as file:
        file["steps"].resize(count, axis=0)
        file["steps"][-1] = count
        assert held(file) == 2
# Twice at a time, in one process.
first, second = h5py.File("again.h5", "a"), h5py.File("again.h5", "a")
second["once"][0] = 7
assert held(first) == 2 and held(second) == 2
first.close()
second["once"][1] = 8
assert held(second) == 2
second.close()
# Read only: nothing is made, and nothing changes.
stamp = session.tags_of(".hdf5/again.h5")["hdf5.file"]
with h5py.File("again.h5", "r") as file:
    assert file["once"][:2].tolist() == [7, 8] and held(file) == 2
assert session.tags_of(".hdf5/again.h5")["hdf5.file"] == stamp
# Changed by a program without the connector: no old cells are seen once it is open for writing again.
plain = {key: value for key, value in os.environ.items() if not key.startswith("HDF5_")}
subprocess.run(
    [sys.executable, "-c", "import h5py; f = h5py.File('again.h5', 'a'); f['once'][2] = 99; f['new'] = [1, 2]"], env=plain, check=True
)
with h5py.File("again.h5", "a") as file:
    assert held(file, missing=True) == 0
    file["once"][3] = 100
    file["steps"][0] = 5
    assert held(file, missing=True) == 2
    assert session[".hdf5/again.h5/once"][...].tolist() == [7, 8, 99, 100, 4]
# Emptied.
with h5py.File("again.h5", "w") as file:
    assert held(file) == 0 and not session.exists(".hdf5/again.h5/once")
    file["other"] = 1.5
    assert held(file) == 1
# Left open by an object, and written to after the file was closed.
file = h5py.File("again.h5", "a")
dataset = h5py.h5d.open(file.id, b"other")
file.id.close()
dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(2.5))
assert session[".hdf5/again.h5/other"][...].tolist() == [2.5]
dataset.close()
with h5py.File("again.h5", "r") as file:
    assert file["other"][()] == 2.5 and held(file) == 1
# In memory only, and split over files: the connector lets them pass.
with h5py.File("core.h5", "w", driver="core") as file:
    file["x"] = [1]
assert not session.exists(".hdf5/core.h5/x") and h5py.File("core.h5")["x"][0] == 1
print("all claims hold")
