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

Cells go in blocks of at most 64 MiB between the file and the tiers; nothing is copied through other files.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .array import Array, data_type_name
from .container import Container, Session, connect
from .errors import InvalidError, TerraceError
from .keys import _is_tag
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


def _import_array(
    container: Container,
    name: str,
    source: Any,
    shape: tuple[int, ...],
    dtype: Any,
    report: _Report,
    *,
    attributes: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """One array; a single cell (no dimensions) becomes an array of one cell."""
    try:
        kind = data_type_name(dtype)
    except TypeError as error:
        report.left(name, str(error))
        return
    except InvalidError as error:
        report.left(name, error.message)
        return
    if len(shape) > 8:
        report.left(name, f"it has {len(shape)} dimensions")
        return
    scalar = not shape
    array = container.create_array(name, shape or (1,), kind, create="replace", **options)
    if scalar:
        array[0] = source[()]
    elif math.prod(shape):
        _copy(source, array, shape, np.dtype(kind).itemsize)
    array.tags.update(_tags(attributes or {}))
    report.took(array.name, shape, kind)


# HDF5


def import_hdf5(path: str, container: Container, report: _Report) -> None:
    h5py = _library("h5py", "hdf5")

    def take(group: Any, into: Container) -> None:
        into.tags.update(_tags(dict(group.attrs)))
        for name, item in group.items():
            if isinstance(item, h5py.Group):
                take(item, into.create_container(name))
                continue
            if not isinstance(item, h5py.Dataset):
                report.left(item.name, "it is a named type")
                continue
            grows = [dimension for dimension, most in enumerate(item.maxshape or ()) if most is None]
            chunks = item.chunks if item.chunks and math.prod(item.chunks) * item.dtype.itemsize >= 1 << 16 else None
            _import_array(
                into, name, item, item.shape or (), item.dtype, report,
                attributes={key: value for key, value in item.attrs.items() if key not in _HDF5_OWN},
                chunks=chunks, unlimited=grows, fill_value=item.fillvalue if item.dtype.kind in "biufcS" else 0,
            )  # fmt: skip

    with h5py.File(path, "r") as file:
        take(file, container)


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


def import_netcdf(path: str, container: Container, report: _Report) -> None:
    netcdf = _library("netCDF4", "netcdf")

    def take(group: Any, into: Container) -> None:
        into.tags.update(_tags({name: group.getncattr(name) for name in group.ncattrs()}))
        for name, variable in group.variables.items():
            # Cells as they are stored: scale and missing values are told by tags.
            variable.set_auto_maskandscale(False)
            attributes = {key: variable.getncattr(key) for key in variable.ncattrs()}
            dimensions = variable.get_dims()
            if variable.dtype is str:
                report.left(name, "its strings have no fixed length")
                continue
            options: dict[str, Any] = {}
            if variable.dtype.kind in "iuf":
                default = netcdf.default_fillvals.get(variable.dtype.str[1:], 0)
                options["fill_value"] = attributes.get("_FillValue", default)
            if variable.dimensions:
                options["dimensions"] = variable.dimensions
                options["unlimited"] = [n for n, dimension in enumerate(dimensions) if dimension.isunlimited()]
            _import_array(into, name, variable, variable.shape, variable.dtype, report, attributes=attributes, **options)
        for name, inner in group.groups.items():
            take(inner, into.create_container(name))

    with netcdf.Dataset(path) as file:
        take(file, container)


def export_netcdf(item: Container | Array, path: str, report: _Report) -> None:
    netcdf = _library("netCDF4", "netcdf")

    def give(container: Container, group: Any) -> None:
        group.setncatts(dict(container.tags))
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
        variable.setncatts(tags)
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


def import_fits(path: str, container: Container, report: _Report) -> None:
    fits = _library("astropy.io.fits", "fits")

    with fits.open(path, memmap=True) as file:
        for number, unit in enumerate(file):
            name = unit.header.get("EXTNAME", f"hdu{number}").strip().replace("/", "_") or f"hdu{number}"
            cards = {
                card.keyword: card.value
                for card in unit.header.cards
                if card.keyword not in _FITS_OWN and not card.keyword.startswith(("NAXIS", "TFORM", "TTYPE"))
                and card.keyword not in ("COMMENT", "HISTORY")
            }  # fmt: skip
            for keyword in ("COMMENT", "HISTORY"):
                if keyword in unit.header:
                    cards[keyword] = "\n".join(str(line) for line in unit.header[keyword])
            if unit.data is None:
                container.tags.update(_tags(cards))
                continue
            if isinstance(unit, (fits.BinTableHDU, fits.TableHDU)) and not isinstance(unit, fits.CompImageHDU):
                inner = container.create_container(name)
                inner.tags.update(_tags(cards))
                for column in unit.columns.names:
                    cells = np.asarray(unit.data[column])
                    if cells.dtype.kind == "U":
                        cells = np.char.encode(cells, "ascii", "replace")
                    _import_array(inner, column.replace("/", "_"), cells, cells.shape, cells.dtype, report)
                continue
            cells = unit.data
            _import_array(container, name, cells, cells.shape, cells.dtype, report, attributes=cards)


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
        unit = fits.ImageHDU(cells, header(dict(array.tags)))
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


def import_numpy(path: str, container: Container, report: _Report) -> None:
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                _import_array(container, name, file[name], file[name].shape, file[name].dtype, report)
        return
    cells = np.load(path, mmap_mode="r", allow_pickle=False)
    name = container.name.rpartition("/")[2]
    parent = container.session[container.name.rpartition("/")[0]] if "/" in container.name else container.session
    # The name that was given is the array's own.
    container.session.remove(container.name)
    _import_array(parent, name, cells, cells.shape, cells.dtype, report)


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


def import_zarr(path: str, container: Container, report: _Report) -> None:
    zarr = _library("zarr", "zarr")

    def take(node: Any, into: Container, name: str) -> None:
        if isinstance(node, zarr.Group):
            inner = into.create_container(name) if name else into
            inner.tags.update(_tags(dict(node.attrs)))
            for member, item in node.members():
                take(item, inner, member)
            return
        options: dict[str, Any] = {"chunks": node.chunks or None}
        names = getattr(node.metadata, "dimension_names", None)
        if names and all(names):
            options["dimensions"] = names
        if node.fill_value is not None and node.ndim:
            options["fill_value"] = node.fill_value
        _import_array(
            into, name, node, node.shape, node.dtype, report, attributes=dict(node.attrs), **(options if node.ndim else {})
        )

    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Group):
        take(node, container, "")
    else:
        take(node, container, os.path.basename(path.rstrip("/")).removesuffix(".zarr"))


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


IMPORTS: dict[str, Callable[[str, Container, _Report], None]] = {
    "hdf5": import_hdf5,
    "netcdf": import_netcdf,
    "fits": import_fits,
    "numpy": import_numpy,
    "zarr": import_zarr,
}
EXPORTS: dict[str, Callable[[Container | Array, str, _Report], None]] = {
    "hdf5": export_hdf5,
    "netcdf": export_netcdf,
    "fits": export_fits,
    "numpy": export_numpy,
    "zarr": export_zarr,
}


def import_file(session: Session, path: str, name: str, format: str | None = None, quiet: bool = True) -> None:
    """Takes a file over into the container `name`, which is made if it is not there; arrays of the same names are replaced."""
    chosen = format or format_of(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    is_new = name not in session
    container = session.create_container(name) if name else session
    try:
        IMPORTS[chosen](path, container, _Report(quiet))
    except BaseException:
        if is_new and not len(container):
            session.remove(name)
        raise


def export_file(session: Session, name: str, path: str, format: str | None = None, quiet: bool = True) -> None:
    """Writes an array, or a container with all that is in it, into a new file; one that is there is replaced."""
    item = session[name] if name else session
    if not isinstance(item, (Array, Container)):
        raise InvalidError(f"`{name}` is a bytes object", "it is a file already: terrace get")
    EXPORTS[format or format_of(path)](item, path, _Report(quiet))


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
            one.add_argument("--flush", action="store_true", help="make durable what was taken over")
    given = parser.parse_args(arguments)
    if given.index:
        # From the terrace program, which knows where the agent is.
        os.environ["TERRACE_INDEX"] = given.index
    try:
        session = connect(given.root)
        if given.command == "import":
            import_file(session, given.file, given.name, given.format, given.quiet)
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
