"""What `terrace run --hdf5` adds to a program of h5py: its cells are arrays while the file is open."""

import h5py
import numpy
import terrace

with h5py.File("file.h5", "w") as file:
    file["cells"] = numpy.arange(24.0).reshape(4, 6)
    file.flush()
    assert terrace.connect()[".hdf5/file.h5/cells"][2, 3] == 15.0
with h5py.File("file.h5") as file:
    assert file["cells"][2, 3] == 15.0
