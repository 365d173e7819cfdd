"""`python -m terrace.convert import|export`: between staged containers and files of other formats.

    python -m terrace.convert import survey.h5 study/survey       # a container with an array for each dataset
    python -m terrace.convert export study/survey survey.nc
    terrace import survey.h5 study/survey                         # the same, by the terrace program

    format   file                          in Terrace
    hdf5     .h5 .hdf5 .he5 (h5py)         group = container, dataset = array, attributes = tags
    netcdf   .nc .nc4 .cdf (netCDF4)       the same, with dimensions' names and unlimited dimensions
    fits     .fits .fit .fts (astropy)     image of the HDU EXTNAME (or hdu0, hdu1, ...) = array, cards = tags
    numpy    .npy .npz                     array, or container of arrays
    zarr     .zarr (zarr-python)           group = container, array = array, attributes = tags

    an import:  read what the file holds ─▶ refuse names that are taken ─▶ containers ─▶ arrays ─▶ containers' tags

Nothing is written before all names are known to be free, and what an import has made is removed again when it fails. An array
that is replaced is read from the file first. Cells go in blocks of at most 64 MiB between the file and the tiers; nothing is
copied through other files.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import posixpath
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from .array import Array, data_type_name
from .container import Container, Session, connect
from .errors import DamagedError, ExistsError, InvalidError, NotFoundError, TerraceError
from .keys import METADATA, _is_tag
from .tags import plain

SUFFIXES = {
    "hdf5": (".h5", ".hdf5", ".he5", ".hdf"),
    "netcdf": (".nc", ".nc4", ".cdf", ".netcdf"),
    "fits": (".fits", ".fit", ".fts", ".fits.gz"),
    "numpy": (".npy", ".npz"),
    "zarr": (".zarr",),
}
_BLOCK_BYTES = 64 << 20


def format_of(path: str) -> str:
    """The format that a file's name tells. Raises InvalidError."""
    for name, suffixes in SUFFIXES.items():
        if path.rstrip("/").lower().endswith(suffixes):
            return name
    known = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
    raise InvalidError(f"the format of `{path}` is not told by its name", f"give --format, or one of {known}")


def _library(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidError(f"{module} is not installed", f"pip install 'terrace[{extra}]'") from None


def _blocks(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Blocks of whole inner dimensions that cover a shape."""
    if math.prod(shape) * itemsize <= _BLOCK_BYTES:
        yield tuple(slice(0, extent) for extent in shape)
        return
    row = math.prod(shape[1:]) * itemsize
    if row > _BLOCK_BYTES:
        for number in range(shape[0]):
            for inner in _blocks(shape[1:], itemsize):
                yield (slice(number, number + 1), *inner)
        return
    rows = max(1, _BLOCK_BYTES // max(1, row))
    for start in range(0, shape[0], rows):
        yield (slice(start, min(start + rows, shape[0])), *(slice(0, extent) for extent in shape[1:]))


def _copy(source: Any, target: Any, shape: tuple[int, ...], itemsize: int) -> None:
    for block in _blocks(shape, itemsize):
        target[block] = source[block]


def _tags(attributes: dict[str, Any]) -> dict[str, Any]:
    """What of a file's attributes can be tags; bytes are taken for text."""
    tags = {}
    for key, value in attributes.items():
        value = plain(value)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if _is_tag(value) and 0 < len(key.encode()) <= 255:
            tags[key] = value
    return tags


def _attributes(
    owner: str, keys: Iterable[str], read: Callable[[str], Any], plan: "_Plan", own: Collection[str] = ()
) -> dict[str, Any]:
    """A file's attributes; those that its library can't read are left out."""
    found = {}
    for key in keys:
        if key in own:
            continue
        try:
            found[key] = read(key)
        except Exception as error:
            plan.leave(f"the attribute {key} of {owner}", _reason(error))
    return found


def _reason(error: BaseException) -> str:
    """What an exception of another library says, in one line."""
    said = getattr(error, "strerror", None) or (error.args[0] if isinstance(error, KeyError) and error.args else error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class _Report:
    """What was taken over, and what was not and why."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.arrays = self.bytes = 0

    def took(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.arrays += 1
        self.bytes += size
        if not self.quiet:
            print(f"{name}: {np.dtype(dtype)} {tuple(shape)}, {size} bytes")

    def left(self, name: str, reason: str) -> None:
        print(f"warning: {name} is left out: {reason}", file=sys.stderr)


@dataclass
class _PlannedArray:
    """An array that an import will make. `open` gives what has the cells of a block when it is indexed."""

    name: str
    open: Callable[[], Any]
    shape: tuple[int, ...]
    dtype: str
    tags: dict[str, Any]
    options: dict[str, Any]


@dataclass
class _Plan:
    """What an import will make below (or as) the name `base`, gathered before anything is written."""

    session: Session
    base: str
    report: _Report
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrays: dict[str, _PlannedArray] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _above: set[str] = field(default_factory=set)
    _replaced: set[str] = field(default_factory=set)

    def leave(self, name: str, reason: str) -> None:
        self.left.append((name, reason))

    def container(self, name: str, attributes: dict[str, Any]) -> None:
        if name != self.base and (fault := self._fault(name)):
            self.leave(name, fault)
            return
        self.containers[name] = _tags(attributes)
        self._above.update(_ancestors(name))

    def array(
        self,
        name: str,
        open: Callable[[], Any],
        shape: tuple[int, ...],
        dtype: Any,
        attributes: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """One array; a single cell (no dimensions) becomes an array of one cell."""
        try:
            kind = data_type_name(dtype)
        except (TypeError, InvalidError) as error:
            self.leave(name, error.message if isinstance(error, InvalidError) else _reason(error))
            return
        fault = f"it has {len(shape)} dimensions" if len(shape) > 8 else self._fault(name)
        if fault:
            self.leave(name, fault)
            return
        self.arrays[name] = _PlannedArray(name, open, tuple(shape), kind, _tags(attributes or {}), options)
        self._above.update(_ancestors(name))

    def _fault(self, name: str) -> str:
        """Why an object can't have this name; empty: it can."""
        for part in name.removeprefix(self.base).removeprefix("/").split("/") if name != self.base else ():
            if part in ("", ".", "..", METADATA) or "\0" in part:
                return f"`{part}` is no part of an object's name"
            if len(part.encode("utf-8", "surrogateescape")) > 255:
                return "a part of its name is longer than 255 bytes"
        if name in self.containers or name in self.arrays or name in self._above:
            return "another one in the file has that name"
        for above in _ancestors(name):
            if above in self.arrays:
                return f"{above} is an array"
        return ""

    def check(self, path: str, replace: bool) -> None:
        """Raises InvalidError when there is nothing to make, ExistsError when a name is taken."""
        if not self.arrays and (self.left or not any(self.containers.values()) and len(self.containers) < 2):
            if len(self.left) == 1:
                raise InvalidError(f"nothing of `{path}` is imported: {self.left[0][0]}: {self.left[0][1]}")
            self.tell()
            raise InvalidError(f"nothing of `{path}` is imported: it has no array that can be held")
        kinds: dict[str, str | None] = {"": "container"}

        def kind(name: str) -> str | None:
            if name not in kinds:
                kinds[name] = _kind(self.session, name) if kind(posixpath.dirname(name)) == "container" else None
            return kinds[name]

        words = {"array": "an array", "bytes": "a bytes object", "container": "a container"}
        taken = []
        for name in (*self.containers, *self.arrays):
            for above in (*_ancestors(name), *((name,) if name in self.containers else ())):
                if kind(above) not in (None, "container"):
                    raise ExistsError(
                        f"`{above}` is {words[str(kind(above))]}, and can't become a container",
                        "import under another name, or remove it with `terrace rm`",
                    )
            if name in self.arrays and kind(name) == "array":
                taken.append(name)
            elif name in self.arrays and kind(name) is not None:
                raise ExistsError(
                    f"`{name}` is {words[str(kind(name))]}, which no import replaces by an array",
                    "import under another name" + (f": {name}/NAME" if kind(name) == "container" else ""),
                )
        if taken and not replace:
            more = f", and {len(taken) - 1} more arrays of this import are" if len(taken) > 1 else ""
            raise ExistsError(
                f"`{taken[0]}` is there already{more}; nothing is imported",
                "import under another name, or replace what is there: --replace, in Python replace=True",
            )
        self._replaced = set(taken)

    def tell(self) -> None:
        """Says what is left out and what has another name than in the file."""
        for name, reason in self.left:
            self.report.left(name, reason)
        for note in self.notes if not self.report.quiet else ():
            print(note)

    def carry_out(self) -> None:
        """Makes all of it, or nothing new."""
        made: list[str] = []
        try:
            for name in self.containers:
                self._make_container(name, made)
            for planned in self.arrays.values():
                self._make_container(posixpath.dirname(planned.name), made)
                self._make_array(planned, made)
            # Last, so that a container that was there keeps its tags when the import fails.
            for name, tags in self.containers.items():
                self.session.tags_of(name).update(tags)
        except BaseException:
            for name in reversed(made):
                with contextlib.suppress(TerraceError):
                    self.session.remove(name)
            raise

    def _make_container(self, name: str, made: list[str]) -> None:
        for one in (*_ancestors(name), name):
            if one and not self.session.exists(one):
                self.session.create_container(one)
                made.append(one)

    def _make_array(self, planned: _PlannedArray, made: list[str]) -> None:
        source = planned.open()
        blocks = list(_blocks(planned.shape, np.dtype(planned.dtype).itemsize)) if math.prod(planned.shape) else []
        first = None
        is_replaced = planned.name in self._replaced
        if is_replaced:
            # The array goes when all that comes in its place could be read: twice, where that is more than a block.
            for block in reversed(blocks):
                first = source[block]
        array = self.session.create_array(
            planned.name, planned.shape, planned.dtype, create="replace" if is_replaced else "new", **planned.options
        )
        if not is_replaced:
            made.append(planned.name)
        for number, block in enumerate(blocks):
            array[block] = source[block] if number or first is None else first
        for key in array.tags.keys() - planned.tags.keys():
            del array.tags[key]
        array.tags.update(planned.tags)
        self.report.took(array.name, array.shape, planned.dtype)


def _ancestors(name: str) -> list[str]:
    """Containers above a name, the uppermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _kind(session: Session, name: str) -> str | None:
    try:
        return session.stat(name).kind
    except NotFoundError:
        return None
    except DamagedError:
        # Metadata of an array of a kind that Terrace has none of.
        return "array"


# HDF5


@contextlib.contextmanager
def read_hdf5(path: str, plan: _Plan) -> Iterator[None]:
    h5py = _library("h5py", "hdf5")

    def take(group: Any, into: str, above: tuple[Any, ...]) -> None:
        plan.container(into, _attributes(into, group.attrs, group.attrs.__getitem__, plan))
        for member in group:
            name = posixpath.join(into, member)
            try:
                item = group[member]
            except (KeyError, OSError, ValueError, RuntimeError) as error:
                plan.leave(name, link(group.get(member, getlink=True)) or _reason(error))
                continue
            if isinstance(item, h5py.Group):
                if item in above:
                    plan.leave(name, f"it is the group {above[above.index(item)].name} again, in which it lies")
                else:
                    take(item, name, (*above, item))
            elif isinstance(item, h5py.Dataset):
                take_array(item, name)
            else:
                plan.leave(name, "it is a named type")

    def link(found: Any) -> str:
        if isinstance(found, h5py.ExternalLink):
            return f"it is a link to {found.path} in {found.filename}, which is not to be had"
        return f"it is a link to {found.path}, which is not there" if isinstance(found, h5py.SoftLink) else ""

    def take_array(item: Any, name: str) -> None:
        if item.shape is None:
            plan.leave(name, "it is a dataset without any cells")
            return
        try:
            dtype = item.dtype
        except TypeError as error:
            plan.leave(name, _reason(error))
            return
        grows = [dimension for dimension, most in enumerate(item.maxshape or ()) if most is None]
        chunks = item.chunks if item.chunks and math.prod(item.chunks) * dtype.itemsize >= 1 << 16 else None
        plan.array(
            name, lambda: item, item.shape, dtype, _attributes(name, item.attrs, item.attrs.__getitem__, plan, _HDF5_OWN),
            chunks=chunks, unlimited=grows, fill_value=item.fillvalue if dtype.kind in "biufcS" else 0,
        )  # fmt: skip

    with h5py.File(path, "r") as file:
        take(file, plan.base, (file["/"],))
        yield


#: Attributes that HDF5's dimension scales and netCDF keep for themselves.
_HDF5_OWN = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}


def export_hdf5(item: Container | Array, path: str, report: _Report) -> None:
    h5py = _library("h5py", "hdf5")

    def give(container: Container, group: Any) -> None:
        group.attrs.update(dict(container.tags))
        for name in container:
            found = container[name]
            if isinstance(found, Container):
                give(found, group.create_group(name))
            elif isinstance(found, Array):
                give_array(found, group, name)
            else:
                report.left(found.name, "it is a bytes object")

    def give_array(array: Array, group: Any, name: str) -> None:
        if array.dtype.kind in "mMU":
            report.left(array.name, f"HDF5 has no {array.dtype}")
            return
        most = [None if grows else extent for extent, grows in zip(array.shape, array.unlimited)]
        dataset = group.create_dataset(
            name, array.shape, array.dtype, fillvalue=array.fill_value,
            maxshape=most if any(array.unlimited) else None,
            chunks=tuple(map(min, array.chunks, (max(1, extent) for extent in array.shape))) if any(array.unlimited) else None,
        )  # fmt: skip
        if array.size:
            _copy(array, dataset, array.shape, array.dtype.itemsize)
        dataset.attrs.update(dict(array.tags))
        for number, label in enumerate(array.dimensions):
            dataset.dims[number].label = label
        report.took(array.name, array.shape, array.dtype)

    with h5py.File(path, "w") as file:
        if isinstance(item, Array):
            give_array(item, file, item.name.rpartition("/")[2])
        else:
            give(item, file)


# NetCDF


@contextlib.contextmanager
def read_netcdf(path: str, plan: _Plan) -> Iterator[None]:
    netcdf = _library("netCDF4", "netcdf")

    def take(group: Any, into: str) -> None:
        plan.container(into, _attributes(into, group.ncattrs(), group.getncattr, plan))
        for member, variable in group.variables.items():
            take_array(variable, posixpath.join(into, member))
        for member, inner in group.groups.items():
            take(inner, posixpath.join(into, member))

    def take_array(variable: Any, name: str) -> None:
        # Cells as they are stored: scale and missing values are told by tags.
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        if variable.dtype is str or isinstance(variable.datatype, netcdf.VLType):
            plan.leave(name, "its strings have no fixed length" if variable.dtype is str else "its cells have no fixed length")
            return
        attributes = _attributes(name, variable.ncattrs(), variable.getncattr, plan)
        options: dict[str, Any] = {}
        if variable.dtype.kind in "iuf":
            default = netcdf.default_fillvals.get(variable.dtype.str[1:], 0)
            options["fill_value"] = attributes.get("_FillValue", default)
        if variable.dimensions:
            options["dimensions"] = variable.dimensions
            options["unlimited"] = [n for n, dimension in enumerate(variable.get_dims()) if dimension.isunlimited()]
        plan.array(name, lambda: variable, variable.shape, variable.dtype, attributes, **options)

    with netcdf.Dataset(path) as file:
        take(file, plan.base)
        yield


def export_netcdf(item: Container | Array, path: str, report: _Report) -> None:
    netcdf = _library("netCDF4", "netcdf")

    def give_tags(tags: dict[str, Any], owner: str, target: Any) -> None:
        for key, value in tags.items():
            try:
                target.setncattr(key, np.int8(value) if isinstance(value, bool) else value)
            except Exception as error:
                report.left(f"the tag {key} of {owner}", _reason(error))

    def give(container: Container, group: Any) -> None:
        give_tags(dict(container.tags), container.name, group)
        for name in container:
            found = container[name]
            if isinstance(found, Container):
                give(found, group.createGroup(name))
            elif isinstance(found, Array):
                give_array(found, group, name)
            else:
                report.left(found.name, "it is a bytes object")

    def give_array(array: Array, group: Any, name: str) -> None:
        if array.dtype.kind not in "iuf" and array.dtype != np.dtype("S1"):
            report.left(array.name, f"netCDF has no {array.dtype}")
            return
        names = []
        for number, extent in enumerate(array.shape):
            label = array.dimensions[number] if array.dimensions else ""
            known = group.dimensions.get(label)
            if not label or (known is not None and len(known) != extent and not known.isunlimited()):
                label = f"{label or name}_{number}"
            if label not in group.dimensions:
                group.createDimension(label, None if array.unlimited[number] else extent)
            names.append(label)
        tags = dict(array.tags)
        fill = tags.pop("_FillValue", None if array.dtype.kind == "S" else array.fill_value)
        variable = group.createVariable(name, array.dtype, names, fill_value=fill)
        variable.set_auto_maskandscale(False)
        if array.size:
            _copy(array, variable, array.shape, array.dtype.itemsize)
        give_tags(tags, array.name, variable)
        report.took(array.name, array.shape, array.dtype)

    with netcdf.Dataset(path, "w", format="NETCDF4") as file:
        if isinstance(item, Array):
            give_array(item, file, item.name.rpartition("/")[2])
        else:
            give(item, file)


# FITS

#: Cards that tell how the bytes lie, which is the array's own matter.
_FITS_OWN = {
    "SIMPLE", "BITPIX", "NAXIS", "EXTEND", "XTENSION", "PCOUNT", "GCOUNT", "GROUPS", "BSCALE", "BZERO", "END", "TFIELDS",
    "CHECKSUM", "DATASUM", "",
}  # fmt: skip


@dataclass
class _FitsImage:
    """Physical values of an image: scaled, NaN where cells are BLANK. `stored`: the same image unscaled, where it is needed."""

    unit: Any
    stored: Any = None
    is_int8: bool = False

    def __getitem__(self, block: tuple[slice, ...]) -> np.ndarray:
        if self.is_int8:
            return (self.stored.section[block] ^ np.uint8(128)).view("i1")
        cells = self.unit.section[block]
        if self.stored is not None:
            cells[self.stored.section[block] == 0] = np.nan
        return cells


class _FitsNames:
    """A name of its own for each HDU or column, also where several are called the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._versions: dict[str, set[Any]] = {}

    def give(self, wanted: str, version: Any = None) -> str:
        wanted = wanted.strip().replace("/", "_")
        versions = self._versions.setdefault(wanted, set())
        name = wanted
        if name in self._taken and version is not None and version not in versions:
            name = f"{wanted}_{version}"
        number = 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        versions.add(1 if version is None else version)
        return name


@contextlib.contextmanager
def read_fits(path: str, plan: _Plan) -> Iterator[None]:
    fits = _library("astropy.io.fits", "fits")
    images = (fits.PrimaryHDU, fits.ImageHDU, fits.CompImageHDU)

    def take_table(unit: Any, name: str, cards: dict[str, Any]) -> None:
        plan.container(name, cards)
        names = _FitsNames()
        for number, label in enumerate(unit.columns.names):
            cells = np.asarray(unit.data.field(number))
            if cells.dtype.kind == "U":
                cells = np.char.encode(cells, "ascii", "replace")
            called = names.give(label)
            if called != label.strip().replace("/", "_"):
                plan.notes.append(f"{name}/{called}: column {number}, as the name {label} is taken")
            plan.array(f"{name}/{called}", lambda cells=cells: cells, cells.shape, cells.dtype)

    def take_image(unit: Any, number: int, name: str, cards: dict[str, Any]) -> None:
        blank, zero = cards.get("BLANK"), int(unit.header.get("BZERO", 0))
        pixel = unit.header["BITPIX"], zero, unit.header.get("BSCALE", 1)
        # Of BLANK, astropy takes zero for none, and fails for int8.
        image = _FitsImage(unit, is_int8=blank is not None and pixel == (8, -128, 1))
        if image.is_int8 or (blank == 0 and pixel[0] > 0):
            image.stored = files.enter_context(fits.open(path, do_not_scale_image_data=True))[number]
        if image.is_int8:
            dtype = np.dtype("i1")
        else:
            # One cell tells the type of all; `section` reads no more of the file than it gives.
            dtype = unit.section[(slice(0, 1),) * len(unit.shape)].dtype
        if dtype.kind == "f":
            cards.pop("BLANK", None)
        elif blank is not None:
            image.stored = image.stored if image.is_int8 else None
            cards["BLANK"] = blank + zero
        plan.array(name, lambda: image, unit.shape, dtype, cards)

    with contextlib.ExitStack() as files:
        names = _FitsNames()
        # Without `memmap`, which would refuse images that are scaled; others are mapped all the same.
        for number, unit in enumerate(files.enter_context(fits.open(path))):
            label = str(unit.header.get("EXTNAME", "")).strip() or f"hdu{number}"
            name = names.give(label, unit.header.get("EXTVER"))
            if name != label.replace("/", "_"):
                plan.notes.append(f"{posixpath.join(plan.base, name)}: HDU {number}, as the name {label} is taken")
            cards = {
                card.keyword: card.value
                for card in unit.header.cards
                if card.keyword not in _FITS_OWN and not card.keyword.startswith(("NAXIS", "TFORM", "TTYPE"))
                and card.keyword not in ("COMMENT", "HISTORY")
            }  # fmt: skip
            for keyword in ("COMMENT", "HISTORY"):
                if keyword in unit.header:
                    cards[keyword] = "\n".join(str(line) for line in unit.header[keyword])
            name = posixpath.join(plan.base, name)
            if isinstance(unit, images) and not isinstance(unit, fits.GroupsHDU):
                if unit.shape and math.prod(unit.shape):
                    take_image(unit, number, name, cards)
                else:
                    plan.container(plan.base, {**plan.containers.get(plan.base, {}), **cards})
            elif isinstance(unit, (fits.BinTableHDU, fits.TableHDU)):
                take_table(unit, name, cards)
            else:
                plan.leave(name, f"it is neither an image nor a table ({type(unit).__name__})")
        yield


def export_fits(item: Container | Array, path: str, report: _Report) -> None:
    fits = _library("astropy.io.fits", "fits")
    units: list[Any] = [fits.PrimaryHDU()]

    def header(tags: dict[str, Any]) -> Any:
        made = fits.Header()
        for key, value in tags.items():
            lines = value.split("\n") if isinstance(value, str) else []
            if key.upper() in ("COMMENT", "HISTORY"):
                for line in lines:
                    made[key.upper()] = line
            elif isinstance(value, list) or len(lines) > 1 or (isinstance(value, float) and not math.isfinite(value)):
                report.left(key, "a card has one number or one line of text")
            elif not all(" " <= letter <= "~" for letter in (*key, *str(value))):
                report.left(key, "a card has ASCII text")
            else:
                made[key.upper() if len(key) <= 8 else f"HIERARCH {key}"] = value
        return made

    def give(array: Array, name: str) -> None:
        cells = array[...]
        if cells.dtype.kind not in "iuf":
            report.left(array.name, f"an image of FITS has no {cells.dtype}")
            return
        tags = dict(array.tags)
        if isinstance(blank := tags.pop("BLANK", None), int) and cells.dtype.kind != "f":
            # In a file it is the number that is stored; types that FITS has not are stored as those of the other sign.
            half = 1 << (8 * cells.dtype.itemsize - 1)
            tags["BLANK"] = blank + {"i1": half, "u2": -half, "u4": -half, "u8": -half}.get(cells.dtype.str[1:], 0)
        unit = fits.ImageHDU(cells, header(tags))
        unit.header["EXTNAME"] = name
        units.append(unit)
        report.took(array.name, array.shape, array.dtype)

    if isinstance(item, Array):
        give(item, item.name.rpartition("/")[2])
    else:
        units[0].header.update(header(dict(item.tags)))
        for name in item:
            found = item[name]
            if isinstance(found, Array):
                give(found, name)
            else:
                report.left(found.name, "FITS has images only")
    fits.HDUList(units).writeto(path, overwrite=True)


# NumPy


@contextlib.contextmanager
def read_numpy(path: str, plan: _Plan) -> Iterator[None]:
    with open(path, "rb") as file:
        begins = file.read(6)
        if begins[:2] != b"PK":
            _take_npy(file, begins, path, plan)
            yield
            return
    with np.load(path, allow_pickle=False) as members:
        plan.container(plan.base, {})
        for entry in members.zip.namelist():
            name = posixpath.join(plan.base, *entry.removesuffix(".npy").split("/"))
            if entry.startswith("/") or not entry.endswith(".npy"):
                plan.leave(f"{plan.base}: {entry}", "it is no array")
                continue
            with members.zip.open(entry) as file:
                shape, dtype = _npy_header(file)
            plan.array(name, lambda entry=entry: members[entry], shape, dtype)
        yield


def _take_npy(file: BinaryIO, begins: bytes, path: str, plan: _Plan) -> None:
    """An .npy file, whose array has the name that was given."""
    if begins != np.lib.format.MAGIC_PREFIX:
        raise ValueError("it is neither an .npy nor an .npz file")
    if not plan.base:
        raise ValueError("its array needs a name: the root is a container")
    file.seek(0)
    shape, dtype = _npy_header(file)
    size, there = math.prod(shape) * dtype.itemsize, os.path.getsize(path) - file.tell()
    if not dtype.hasobject and there < size:
        raise ValueError(f"it is cut short: {there} of {size} bytes of cells are there")
    plan.array(plan.base, lambda: np.load(path, mmap_mode="r", allow_pickle=False), shape, dtype)


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError("its cells have fields, or its version of the format is not known")
    shape, _, dtype = read(file)
    return shape, dtype


def export_numpy(item: Container | Array, path: str, report: _Report) -> None:
    if isinstance(item, Array):
        target = np.lib.format.open_memmap(path, "w+", item.dtype, item.shape)
        if item.size:
            _copy(item, target, item.shape, item.dtype.itemsize)
        target.flush()
        report.took(item.name, item.shape, item.dtype)
        return
    arrays = {}
    for name in item:
        found = item[name]
        if isinstance(found, Array):
            arrays[name] = found[...]
            report.took(found.name, found.shape, found.dtype)
        else:
            report.left(found.name, "an .npz file has arrays only")
    np.savez(path, **arrays)


# Zarr


@contextlib.contextmanager
def read_zarr(path: str, plan: _Plan) -> Iterator[None]:
    zarr = _library("zarr", "zarr")

    def take(node: Any, name: str) -> None:
        if isinstance(node, zarr.Group):
            plan.container(name, dict(node.attrs))
            for member, item in node.members():
                take(item, posixpath.join(name, member))
            return
        options: dict[str, Any] = {"chunks": node.chunks or None}
        names = getattr(node.metadata, "dimension_names", None)
        if names and all(names):
            options["dimensions"] = names
        if node.fill_value is not None and node.ndim:
            options["fill_value"] = node.fill_value
        plan.array(name, lambda: node, node.shape, node.dtype, dict(node.attrs), **(options if node.ndim else {}))

    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Group):
        take(node, plan.base)
    else:
        plan.container(plan.base, {})
        take(node, posixpath.join(plan.base, os.path.basename(path.rstrip("/")).removesuffix(".zarr")))
    yield


def export_zarr(item: Container | Array, path: str, report: _Report) -> None:
    zarr = _library("zarr", "zarr")

    def give(found: Container | Array, target: Any, name: str) -> None:
        if isinstance(found, Array):
            made = target.create_array(
                name, shape=found.shape, dtype=found.dtype, chunks=found.chunks, fill_value=found.fill_value,
                dimension_names=found.dimensions or None, attributes=dict(found.tags), overwrite=True,
            )  # fmt: skip
            if found.size:
                _copy(found, made, found.shape, found.dtype.itemsize)
            report.took(found.name, found.shape, found.dtype)
        elif isinstance(found, Container):
            group = target.create_group(name, overwrite=True) if name else target
            group.attrs.update(dict(found.tags))
            for member in found:
                give(found[member], group, member)
        else:
            report.left(found.name, "it is a bytes object")

    group = zarr.open_group(path, mode="w", zarr_format=3)
    give(item, group, item.name.rpartition("/")[2] if isinstance(item, Array) else "")


#: Each plans what a file holds, and keeps the file open as long as it is in the `with` statement.
IMPORTS: dict[str, Callable[[str, _Plan], contextlib.AbstractContextManager[None]]] = {
    "hdf5": read_hdf5,
    "netcdf": read_netcdf,
    "fits": read_fits,
    "numpy": read_numpy,
    "zarr": read_zarr,
}
EXPORTS: dict[str, Callable[[Container | Array, str, _Report], None]] = {
    "hdf5": export_hdf5,
    "netcdf": export_netcdf,
    "fits": export_fits,
    "numpy": export_numpy,
    "zarr": export_zarr,
}


def import_file(
    session: Session, path: str, name: str, format: str | None = None, quiet: bool = True, replace: bool = False
) -> None:
    """Takes a file over into the container `name`, which is made if it is not there (an .npy file becomes the array `name`).

    Raises ExistsError, before anything is written, when one of its arrays is there already and `replace` is not set, and
    InvalidError when the file can't be read, or holds nothing that can be an array; then nothing new is left.
    """
    chosen = format or format_of(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    if name.startswith("/"):
        raise InvalidError(f"`{name}` is not below the root", f"names are paths below {session.root}")
    plan = _Plan(session, "/".join(part for part in name.split("/") if part), _Report(quiet))
    try:
        with IMPORTS[chosen](path, plan):
            plan.check(path, replace)
            plan.tell()
            plan.carry_out()
    except TerraceError:
        raise
    except Exception as error:
        hint = "what the import had made is removed again" if plan.report.arrays else None
        raise InvalidError(f"`{path}` can't be imported: {_reason(error)}", hint) from error


def export_file(session: Session, name: str, path: str, format: str | None = None, quiet: bool = True) -> None:
    """Writes an array, or a container with all that is in it, into a new file; one that is there is replaced."""
    item = session[name] if name else session
    if not isinstance(item, (Array, Container)):
        raise InvalidError(f"`{name}` is a bytes object", "it is a file already: terrace get")
    chosen = format or format_of(path)
    try:
        EXPORTS[chosen](item, path, _Report(quiet))
    except TerraceError:
        raise
    except Exception as error:
        raise InvalidError(f"`{name}` can't be exported to `{path}`: {_reason(error)}") from error


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m terrace.convert", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command, first, second in (("import", "file", "name"), ("export", "name", "file")):
        one = commands.add_parser(command)
        one.add_argument(first)
        one.add_argument(second)
        one.add_argument("--format", choices=sorted(SUFFIXES))
        one.add_argument("--root", default="", help="the root's path; without it, that of the run")
        one.add_argument("--index", help=argparse.SUPPRESS)
        one.add_argument("--quiet", action="store_true", help="tell only what is left out")
        if command == "import":
            one.add_argument("--replace", action="store_true", help="replace arrays that are there already")
            one.add_argument("--flush", action="store_true", help="make durable what was taken over")
    given = parser.parse_args(arguments)
    if given.index:
        # From the terrace program, which knows where the agent is.
        os.environ["TERRACE_INDEX"] = given.index
    try:
        session = connect(given.root)
        if given.command == "import":
            import_file(session, given.file, given.name, given.format, given.quiet, given.replace)
            if given.flush:
                session.flush(given.name)
        else:
            export_file(session, given.name, given.file, given.format, given.quiet)
    except (TerraceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
