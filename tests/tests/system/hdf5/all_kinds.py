"""Writes datasets of all kinds into the file that is named; the same calls make the same bytes wherever they are made.

With a second argument it waits for lines on its standard input between the steps of a series, and compares after each.
"""

import sys

import h5py
import numpy as np

name, steps = sys.argv[1], len(sys.argv) > 2

if steps:
    import terrace
    from compare import compare

    session = terrace.connect()

file = h5py.File(name, "w")
file.attrs["title"] = "all kinds"
group = file.create_group("made/of/groups")
group.attrs["level"] = 3
series = file.create_dataset("series", (0, 4), "f8", maxshape=(None, 4), chunks=(2, 4), compression="gzip", shuffle=True)
series.attrs["units"] = "K"
series.attrs["range"] = [0.5, 9.5]
for step in range(3):
    series.resize(step + 1, axis=0)
    series[step] = np.arange(4) + 10 * step
    if steps:
        print("written", step, flush=True)
        sys.stdin.readline()
file["made/of/groups/big_endian"] = np.arange(12, dtype=">i4").reshape(3, 4)
file["made/of/groups/big_endian"][1, 1:3] = [-1, -2]
file["scalar"] = 2.5
file["truth"] = np.array([True, False, True])
file["complex"] = np.array([1 + 2j, 3j])
file["half"] = np.array([0.1, 1000], "f2")
file["texts"] = np.array([b"one", b"three"])
file["table"] = np.array([(1, 2.5, b"a"), (3, 4.5, b"bc")], [("number", "<i4"), ("value", ">f8"), ("text", "S2")])
file["table"][0] = (9, 9.5, b"zz")
filled = file.create_dataset("filled", (4, 5), "i2", fillvalue=-1)
filled[1:3, ::2] = 4
filled[[0, 3], 1] = 5
fancy = file.create_dataset("fancy", (6, 6), "i8", chunks=(2, 3), fletcher32=True, fillvalue=0)
fancy[np.eye(6, dtype=bool)] = np.arange(6)
file["any_length"] = ["a text", "of any length"]
file["ragged"] = np.array([1, 2])
file["ragged_list"] = h5py.Empty("f4")
file["soft"] = h5py.SoftLink("/series")
file.move("truth", "made/truth")
file["gone"] = np.arange(3)
del file["gone"]
file.copy("scalar", "copied")
if steps:
    compare(session, file, name, missing=True)
    held = {"series", "scalar", "made/truth", "complex", "half", "texts", "table/number", "filled", "fancy", "any_length"}
    held |= {"made/of/groups/big_endian"}
    lacking = {path for path in held if not session.exists(f".hdf5/{name}/{path}")}
    assert not lacking, lacking
    assert not session.exists(f".hdf5/{name}/gone") and not session.exists(f".hdf5/{name}/truth")
    assert session[f".hdf5/{name}/series"].tags["units"] == "K"
    assert session[f".hdf5/{name}/series"].tags["range"] == [0.5, 9.5]
    assert session.tags_of(f".hdf5/{name}/made/of/groups")["level"] == 3
file.close()
print("all claims hold")
