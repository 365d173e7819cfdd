"""What arrays beside an open HDF5 file say, compared with what h5py reads from it."""

import h5py
import numpy as np
import terrace


def is_held(dataset):
    """Whether a dataset can be arrays: by its type, its rank and its extent."""
    extent = dataset.shape
    if extent is None or len(extent) > 8 or dataset.is_virtual:
        return False
    members = [dataset.dtype[name] for name in dataset.dtype.names] if dataset.dtype.names else [dataset.dtype]
    return all(member.kind in "biufcS" or h5py.check_string_dtype(member) for member in members)


def cells(dataset):
    value = dataset[()] if dataset.shape == () else dataset[...]
    return np.atleast_1d(value)


def equal(array, wanted, name):
    found = array[...]
    assert found.shape == wanted.shape, f"{name}: {found.shape}, and {wanted.shape} in the file"
    if wanted.dtype.kind == "O":
        wanted = wanted.astype("S")
    same = np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc")
    assert same, f"{name}: {found!r}\nand in the file {wanted!r}"


def compare(session, file, name, missing=False):
    """Every array says what its dataset says, and there is one for every dataset that can have one; gives how many there are.

    `missing`: datasets may be without arrays, too.
    """
    container = f".hdf5/{name}"
    wanted = {}

    def visit(path, item):
        if isinstance(item, h5py.Dataset) and is_held(item):
            value = cells(item)
            if item.dtype.names:
                wanted.update({f"{container}/{path}/{member}": value[member] for member in item.dtype.names})
            else:
                wanted[f"{container}/{path}"] = value

    file.visititems(visit)
    found = {}

    def walk(at):
        for name in session[at]:
            item = session[f"{at}/{name}"]
            if isinstance(item, terrace.Array):
                found[item.name] = item
            else:
                walk(item.name)

    if session.exists(container):
        walk(container)
    extra = found.keys() - wanted.keys()
    assert not extra, f"arrays without a dataset: {extra}"
    lacking = wanted.keys() - found.keys()
    assert missing or not lacking, f"datasets without an array: {lacking}"
    for path, array in found.items():
        equal(array, wanted[path], path)
    return len(found)
