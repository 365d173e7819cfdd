"""h5py and netCDF4 bring an HDF5 library each: both write, in either order, and in turns."""

import h5py
import netCDF4
import numpy as np
import terrace

session = terrace.connect()
assert h5py.version.hdf5_version != netCDF4.__hdf5libversion__, "they are of one version now: is it one library, too?"
plain = h5py.File("plain.h5", "w")
with netCDF4.Dataset("net.nc", "w") as net:
    net.createDimension("time", None)
    net.createDimension("x", 3)
    speed = net.createVariable("speed", "f4", ("time", "x"), zlib=True)
    speed.units = "m/s"
    for step in range(4):
        speed[step] = np.arange(3) + step
        plain[f"x{step}"] = np.arange(step + 1)
        assert session[".hdf5/net.nc/speed"][...].tolist() == (np.arange(3) + np.arange(step + 1)[:, None]).tolist()
        assert session[f".hdf5/plain.h5/x{step}"][...].tolist() == list(range(step + 1))
    assert session[".hdf5/net.nc/speed"].tags["units"] == "m/s"
plain.close()
with netCDF4.Dataset("net.nc") as net:
    assert net["speed"][:].tolist() == (np.arange(3) + np.arange(4)[:, None]).tolist()
with h5py.File("net.nc") as file:
    assert file["speed"].shape == (4, 3)
print("all claims hold")
