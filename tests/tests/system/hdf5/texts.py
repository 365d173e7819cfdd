"""Texts of any length: what the file says is in an array as soon as it is written, however long they get."""

import h5py
import numpy as np
import terrace
from compare import compare

session = terrace.connect()
NAME = "texts.h5"


def width(path):
    return session[f".hdf5/{NAME}/{path}"].dtype.itemsize


def is_there(path):
    return session.exists(f".hdf5/{NAME}/{path}")


with h5py.File(NAME, "w") as file:
    file["label"] = "a text of one cell"
    lines = file.create_dataset("lines", (0,), h5py.string_dtype(), maxshape=(None,), chunks=(4,))
    for step in range(10):
        lines.resize(step + 1, axis=0)
        lines[step] = "ä" * step
        compare(session, file, NAME)
    assert width("lines") == 32
    # Longer than any before: the array is made anew, with all that was there.
    lines[3] = "long " * 20
    compare(session, file, NAME)
    assert width("lines") == 128
    file["label"][()] = "x" * 4096
    compare(session, file, NAME)
    kind = np.dtype([("name", h5py.string_dtype()), ("value", "f8"), ("unit", "S3")])
    table = file.create_dataset("table", (3,), kind)
    table[0] = ("first", 1.5, b"km")
    table[2] = ("y" * 300, 2.5, b"s")
    table[1] = ("two", 3.5, b"")
    assert compare(session, file, NAME) == 5
    # What nobody has written is empty.
    file.create_dataset("empty", (2, 2), h5py.string_dtype())[0, 1] = ""
    assert compare(session, file, NAME) == 6

# A later program goes on with what is there.
with h5py.File(NAME, "a") as file:
    file["lines"][0] = "first"
    assert width("lines") == 128
    file["lines"].resize(12, axis=0)
    file["lines"][11] = "z" * 129
    assert compare(session, file, NAME) == 2 + 4
    # Longer than arrays take: the file has it.
    file["lines"][5] = "x" * 4097
    assert not is_there("lines") and file["lines"][5] == b"x" * 4097
    filled = file.create_dataset("filled", (2,), h5py.string_dtype(), fillvalue="none")
    assert not is_there("filled")
print("all claims hold")
