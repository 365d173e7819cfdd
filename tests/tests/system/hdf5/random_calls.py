"""Random calls of h5py on a file below the root; after each few of them all arrays say what the file says. Arguments: seed, calls."""

import sys

import h5py
import numpy as np
import terrace
from compare import compare

seed, calls = int(sys.argv[1]), int(sys.argv[2])
chance = np.random.default_rng(seed)
session = terrace.connect()
TYPES = ["i1", ">i2", "<i4", ">i8", "u1", "<u2", ">u4", "u8", "<f4", ">f8", "f2", "?", "c8", "c16", "S5"]
TEXT = h5py.string_dtype()
TYPES += [TEXT, TEXT, [("t", TEXT), ("a", "<i4"), ("ascii", h5py.string_dtype("ascii"))]]
TYPES += [[("a", "<i4"), ("b", ">f8"), ("s", "S3")], [("flag", "?"), ("z", "c8"), ("h", "f2")]]
file = h5py.File("random.h5", "w")
number = 0


def values(dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.names:
        made = np.zeros(shape, dtype)
        for member in dtype.names:
            made[member] = values(dtype[member], shape)
        return made
    if dtype.kind == "O":
        made = np.empty(shape, object)
        for at in np.ndindex(made.shape):
            letter = "x" if h5py.check_string_dtype(dtype).encoding == "ascii" else "é"
            made[at] = letter * int(chance.integers(0, 9) if chance.random() < 0.9 else chance.integers(9, 200))
        return made if made.shape else made[()]
    raw = chance.integers(0, 120, shape)
    return raw.astype("S").astype(dtype) if dtype.kind == "S" else raw.astype(dtype)


def datasets():
    found = []
    file.visititems(lambda path, item: found.append(path) if isinstance(item, h5py.Dataset) else None)
    return found


def groups():
    found = ["/"]
    file.visititems(lambda path, item: found.append(path) if isinstance(item, h5py.Group) else None)
    return found


def pick(names):
    return names[chance.integers(len(names))] if names else None


def new_name():
    global number
    number += 1
    return f"{pick(groups()).rstrip('/')}/n{number}"


def create():
    dtype = TYPES[chance.integers(len(TYPES))]
    rank = int(chance.integers(0, 4))
    shape = tuple(int(extent) for extent in chance.integers(0, 9, rank))
    # Without it HDF5 leaves in cells that nobody has written what was there in the file before.
    options = {"fill_time": "alloc"}
    if rank and chance.random() < 0.6:
        options["maxshape"] = tuple(None if chance.random() < 0.7 else max(extent, 1) for extent in shape)
        most = [extent or 9 for extent in options["maxshape"]]
        options["chunks"] = tuple(min(int(size), extent) for size, extent in zip(chance.integers(1, 5, rank), most))
        if chance.random() < 0.5:
            options["compression"] = pick(["gzip", "lzf"])
    elif 0 in shape:
        shape = tuple(extent + 1 for extent in shape)
    plain = np.dtype(dtype)
    if plain.kind in "iuf" and chance.random() < 0.4:
        options["fillvalue"] = plain.type(7)
    if chance.random() < 0.5:
        options["data"] = values(dtype, shape)
    file.create_dataset(new_name(), shape, plain, **options)


def part(extent):
    kind = chance.random()
    if kind < 0.3:
        return slice(None)
    low = int(chance.integers(0, extent))
    high = int(chance.integers(low, extent)) + 1
    return slice(low, high, int(chance.integers(1, 4))) if kind < 0.8 else low


def write():
    name = pick(datasets())
    if not name:
        return
    dataset = file[name]
    if dataset.shape == ():
        dataset[()] = values(dataset.dtype, ())
    elif 0 not in dataset.shape:
        where = tuple(part(extent) for extent in dataset.shape)
        kind = chance.random()
        if kind < 0.2 and len(dataset.shape) == 1:
            where = (sorted(chance.choice(dataset.shape[0], 1 + dataset.shape[0] // 2, replace=False).tolist()),)
        elif kind < 0.3:
            mask = chance.random(dataset.shape) < 0.4
            if mask.any():
                dataset[mask] = values(dataset.dtype, int(mask.sum()))
            return
        shape = np.empty(dataset.shape, "u1")[where].shape
        # One value for all, or for each row, is written by a selection that is shifted.
        kind = chance.random()
        written = values(dataset.dtype, () if kind < 0.2 else shape[1:] if kind < 0.4 else shape)
        if dataset.dtype.kind in "iuf" and chance.random() < 0.3:
            written = written.astype("f8" if chance.random() < 0.5 else "i8")
        dataset[where] = written


def write_member():
    # h5py can't write a text of any length as a member alone.
    plain = [name for name in datasets() if not file[name].dtype.hasobject]
    named = [name for name in plain if file[name].dtype.names and file[name].shape and 0 not in file[name].shape]
    if named:
        dataset = file[pick(named)]
        member = pick(list(dataset.dtype.names))
        dataset[(*(slice(None) for _ in dataset.shape), member)] = values(dataset.dtype[member], dataset.shape)


def read_direct():
    """Cells that lie apart in memory."""
    named = [name for name in datasets() if file[name].dtype.kind in "iuf" and len(file[name].shape) == 1 and file[name].shape[0] > 1]
    if named:
        dataset = file[pick(named)]
        cells = values(dataset.dtype, 2 * dataset.shape[0])
        dataset.write_direct(np.ascontiguousarray(cells), np.s_[:: 2], np.s_[:])


def resize():
    named = [name for name in datasets() if file[name].maxshape and None in file[name].maxshape]
    if named:
        dataset = file[pick(named)]
        by = lambda extent: int(chance.integers(0, 9)) if chance.random() < 0.3 else extent + int(chance.integers(0, 3))
        dataset.resize(tuple(by(extent) if most is None else extent for extent, most in zip(dataset.shape, dataset.maxshape)))


def make_group():
    file.create_group(new_name())


def attribute():
    item = file[pick([*groups(), *datasets()])]
    key = f"k{chance.integers(4)}"
    if chance.random() < 0.3 and key in item.attrs:
        del item.attrs[key]
    else:
        item.attrs[key] = [3, 2.5, "text", [1, 2, 3], [1.5, 2.5], True, np.bytes_(b"ab"), ["a", "b"]][chance.integers(8)]


def delete():
    name = pick([*datasets(), *groups()[1:]])
    if name and chance.random() < 0.5:
        del file[name]


def move():
    name = pick([*datasets(), *groups()[1:]])
    if name:
        to = new_name()
        if not to.startswith(f"{name}/") and not f"/{to}".replace("//", "/").startswith(f"/{name}/"):
            file.move(name, to)


def alias():
    name = pick(datasets())
    if name and f"{name}_soft" not in file and chance.random() < 0.2:
        file[f"{name}_soft"] = h5py.SoftLink(f"/{name}")


def chunk():
    # Raw chunks of texts would be places in the file.
    plain = [name for name in datasets() if not file[name].dtype.hasobject]
    named = [name for name in plain if file[name].chunks and not file[name].compression and 0 not in file[name].shape]
    if named:
        dataset = file[pick(named)]
        offset = tuple(int(chance.integers(0, -(-extent // size))) * size for extent, size in zip(dataset.shape, dataset.chunks))
        dataset.id.write_direct_chunk(offset, values(dataset.dtype, dataset.chunks).tobytes())


def open_again():
    global file
    file.close()
    file = h5py.File("random.h5", "a")


def flush():
    file.flush()


def tags_are_attributes():
    def look(path, item):
        name = ".hdf5/random.h5" + ("" if path == "/" else f"/{path}")
        if not session.exists(name):
            return
        tags = {key: value for key, value in session.tags_of(name).items() if key != "hdf5.file"}
        for key, value in item.attrs.items():
            value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
            if isinstance(value, bytes):
                value = value.decode()
            if isinstance(value, list) and isinstance(value[0], str):
                assert key not in tags, f"{name}: {key} is {tags[key]!r}, and a list of texts in the file"
                continue
            if key in tags:
                assert tags[key] == value, f"{name}: {key} is {tags[key]!r}, and {value!r} in the file"
        assert not tags.keys() - item.attrs.keys(), f"{name}: tags without an attribute: {tags.keys() - item.attrs.keys()}"

    look("/", file)
    file.visititems(look)


CALLS = [create] * 4 + [write] * 8 + [resize] * 3 + [write_member, read_direct, make_group, attribute, attribute, delete, move, alias, chunk]
CALLS += [open_again, flush]
for call in range(calls):
    done = CALLS[chance.integers(len(CALLS))]
    try:
        done()
        if call % 10 == 9:
            # A dataset that was copied, or is reached by two names, may be without arrays until it is written to.
            compare(session, file, "random.h5", missing=True)
            tags_are_attributes()
    except Exception as error:
        raise AssertionError(f"seed {seed}, call {call}: {done.__name__}") from error
held = compare(session, file, "random.h5", missing=True)
file.close()
print("all claims hold")
