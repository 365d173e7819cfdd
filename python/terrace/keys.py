"""Staged containers seen as the keys of a Zarr v3 store.

    run/zarr.json                     a group: a container, with its tags as attributes
    run/temperature/zarr.json         an array as it is now: its shape grows with what is put
    run/temperature/c/3/0             one chunk: cells of a region, straight from and into the tiers
    run/other/c/0                     a chunk of an array with codecs: a bytes object as it is

Nothing goes through files of the durable form: a chunk that is asked for is a region that is got. Arrays whose chunks are
plain little-endian cells in C order are Terrace's own arrays; all others are kept as the files that they are.
"""

from __future__ import annotations

import json
import math
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _native
from .array import Array
from .container import Session
from .errors import DamagedError, InvalidError, TerraceError, WrongKindError

METADATA = "zarr.json"
#: Metadata of Zarr v2, which nothing here would find again.
_METADATA_V2 = {".zgroup", ".zarray", ".zattrs", ".zmetadata"}
_CHUNK = re.compile(r"(?P<node>.+)/c(?P<index>(?:/\d+)*)")
#: What Terrace writes among an array's attributes for itself.
_OWN = "terrace_"


def _is_tag(value: Any) -> bool:
    """Whether an attribute can be a tag; others stay in the metadata's text."""
    if isinstance(value, (bool, float, str)):
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, list) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) and _is_tag(item) for item in value
    )


class ZarrKeys:
    """The keys at and below one container; all names are relative to it, with `/` between their parts."""

    def __init__(self, session: Session, base: str = "") -> None:
        self.session = session
        self.base = base.strip("/")
        self._native = session._native
        self._arrays: dict[str, tuple[Any, Array | None]] = {}

    def _path(self, key: str) -> str:
        return posixpath.join(self.base, key.strip("/")) if self.base else key.strip("/")

    # Nodes

    def _document(self, node: str) -> dict[str, Any] | None:
        """What the node's zarr.json says, in the root or in a tier."""
        try:
            file = self.session.open(posixpath.join(node, METADATA))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except TerraceError as error:
            if isinstance(error, WrongKindError):
                return None
            raise
        with file:
            return json.loads(file.read())

    def array(self, node: str) -> Array | None:
        """The open array at a path, if it is one whose chunks are regions."""
        try:
            signature = self._signature(node)
        except (FileNotFoundError, NotADirectoryError):
            self._arrays.pop(node, None)
            return None
        known = self._arrays.get(node)
        if known is None or known[0] != signature:
            known = signature, self._open(node)
            self._arrays[node] = known
        return known[1]

    def _signature(self, node: str) -> Any:
        """Another one when the array was made again, by anybody."""
        if self.session.is_local:
            found = os.stat(os.path.join(self.session.root, node, METADATA))
            return found.st_ino, found.st_mtime_ns
        spec = self._native.stat(node)["spec"]
        return spec and (spec["dtype"], spec["chunks"], spec["fill"], spec["dimensions"])

    def _open(self, node: str) -> Array | None:
        document = self._document(node)
        if document is None or document.get("node_type") != "array":
            return None
        try:
            described = _native.parse_zarr_metadata(json.dumps(document))
        except DamagedError:
            # A type or a rank that Terrace has no arrays of: plain files.
            return None
        if described is None or not described[1] or not _has_plain_keys(document):
            return None
        return self.session.open_array(node)

    def _chunk(self, path: str) -> tuple[Array, tuple[int, ...]] | None:
        """The array and the place in its grid of a chunk that is a region."""
        match = _CHUNK.fullmatch(path)
        array = match and self.array(match["node"])
        if not array:
            return None
        index = tuple(int(part) for part in match["index"].split("/")[1:])
        return (array, index) if len(index) == array.ndim else None

    # Reading

    def read(self, key: str) -> memoryview | bytes | None:
        """The value of a key; None: there is none."""
        path = self._path(key)
        if posixpath.basename(path) == METADATA:
            return self._metadata(posixpath.dirname(path))
        if chunk := self._chunk(path):
            cells = _chunk_cells(*chunk)
            return None if cells is None else memoryview(cells.reshape(-1).view(np.uint8))
        try:
            with self.session.open(path) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, WrongKindError):
            return None

    def _metadata(self, node: str) -> bytes | None:
        document = self._document(node)
        if document is None:
            try:
                if node and self._native.stat(node)["kind"] != "container":
                    return None
            except FileNotFoundError:
                return None
            document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
        # It would tell how things were when it was written.
        document.pop("consolidated_metadata", None)
        if array := self.array(node):
            document["shape"] = list(array.shape)
        attributes = document.get("attributes") or {}
        kept = {key: value for key, value in attributes.items() if not _is_tag(value) and not key.startswith(_OWN)}
        document["attributes"] = {**kept, **self._native.tags(node)}
        return json.dumps(document).encode()

    def exists(self, key: str) -> bool:
        path = self._path(key)
        if posixpath.basename(path) == METADATA:
            return self._metadata(posixpath.dirname(path)) is not None
        if chunk := self._chunk(path):
            return _region(*chunk) is not None
        try:
            return self._native.stat(path)["kind"] == "bytes"
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self, key: str) -> int:
        """Bytes of a key's value. Raises FileNotFoundError."""
        path = self._path(key)
        if chunk := self._chunk(path):
            if _region(*chunk) is None:
                raise FileNotFoundError(key)
            return math.prod(chunk[0].chunks) * chunk[0].dtype.itemsize
        if posixpath.basename(path) != METADATA:
            return self._native.stat(path)["bytes"]
        text = self._metadata(posixpath.dirname(path))
        if text is None:
            raise FileNotFoundError(key)
        return len(text)

    # Writing

    def write(self, key: str, value: Any) -> None:
        """Sets a key. A chunk of an array that is Terrace's own is a put of its region."""
        path = self._path(key)
        if posixpath.basename(path) in _METADATA_V2:
            raise InvalidError(f"`{key}` is a key of Zarr v2, and this store holds Zarr v3 only", "zarr_format=3")
        if posixpath.basename(path) == METADATA:
            self._write_metadata(posixpath.dirname(path), json.loads(bytes(value)))
        elif chunk := self._chunk(path):
            array, index = chunk
            region = _region(array, index)
            if region is None:
                raise InvalidError(f"`{key}` lies outside the array, whose shape is {array.shape}")
            cells = np.frombuffer(value, array.dtype).reshape(array.chunks)
            array.put(region, cells[tuple(slice(part.stop - part.start) for part in region)])
        else:
            with self.session.open(path, "wb") as file:
                file.write(value)

    def _write_metadata(self, node: str, document: dict[str, Any]) -> None:
        document.pop("consolidated_metadata", None)
        given = document.get("attributes") or {}
        text = json.dumps(document)
        if document.get("node_type") == "group":
            if node:
                self._native.create_container(node, "if missing")
            self._native.write_zarr_metadata(node, text)
        else:
            try:
                described = _native.parse_zarr_metadata(text)
            except DamagedError:
                described = None
            if not described or not described[1] or not _has_plain_keys(document):
                self._native.create_container(node, "if missing")
                with self.session.open(posixpath.join(node, METADATA), "wb") as file:
                    file.write(text.encode())
                return
            self._make_array(node, described[0], document)
        tags = {key: value for key, value in given.items() if _is_tag(value) and not key.startswith(_OWN)}
        for key in self._native.tags(node).keys() - tags.keys():
            self._native.delete_tag(node, key)
        if tags:
            self._native.put_tags(node, tags)

    def _make_array(self, node: str, spec: dict[str, Any], document: dict[str, Any]) -> None:
        array = self.array(node)
        if array is None or not _is_same_but_shape(array, spec):
            if parent := posixpath.dirname(node):
                self._native.create_container(parent, "if missing")
            unlimited = tuple(spec["unlimited"])
            self._native.create_array(
                node,
                spec["dtype"],
                spec["shape"],
                unlimited,
                spec["chunks"],
                spec["fill"],
                spec["dimensions"],
                "local",
                "replace",
            )
        elif tuple(spec["shape"]) != array.shape:
            grown = all(
                new == old or (new > old and grows)
                for new, old, grows in zip(spec["shape"], array.shape, array.unlimited)
            )
            if not grown:
                raise InvalidError(
                    f"`{node}` has the shape {array.shape}, and can't get {tuple(spec['shape'])}",
                    "dimensions that shall grow are unlimited from the beginning: "
                    'attributes={"terrace_unlimited": [true, false]}, or create_array(unlimited=[0])',
                )
            array.grow(spec["shape"])
            unlimited = array.unlimited
        else:
            unlimited = array.unlimited
        attributes = document.get("attributes") or {}
        others = {key: value for key, value in attributes.items() if not _is_tag(value)}
        if any(unlimited):
            others["terrace_unlimited"] = list(unlimited)
        if others or array is not None:
            self._native.write_zarr_metadata(node, json.dumps({**document, "attributes": others}))
        self._arrays.pop(node, None)

    def delete(self, key: str) -> None:
        """Removes a key, if it is there. A chunk that is a region becomes fill values; metadata takes its array along."""
        path = self._path(key)
        if chunk := self._chunk(path):
            array, index = chunk
            region = _region(array, index)
            if region is not None:
                array.put(region, array.fill_value)
            return
        if posixpath.basename(path) == METADATA and self.array(posixpath.dirname(path)):
            path = posixpath.dirname(path)
            self._arrays.pop(path, None)
        try:
            self._native.remove(path, False)
        except (FileNotFoundError, NotADirectoryError):
            pass

    def delete_below(self, prefix: str) -> None:
        """Removes an object with all that it contains, if it is there; of the root itself, what it contains."""
        path = self._path(prefix)
        self._arrays.clear()
        names = [path] if path else [name for name, _ in self._native.list("")]
        for name in names:
            try:
                self._native.remove(name, True)
            except (FileNotFoundError, NotADirectoryError):
                pass

    # Listing

    def list_directory(self, prefix: str) -> list[str]:
        """Names directly below a prefix."""
        path = self._path(prefix)
        if array := self.array(path):
            return [METADATA, "c"] if array.size else [METADATA]
        if within := self._within(path):
            return sorted({name.split("/", 1)[0] for name in within[1]}, key=int)
        try:
            names = [name for name, _ in self._native.list(path)]
        except (FileNotFoundError, NotADirectoryError, WrongKindError):
            return []
        if self._metadata(path) is not None:
            names.append(METADATA)
        return names

    def _within(self, path: str) -> tuple[Array, list[str]] | None:
        """Chunks of an array below a path that ends inside its grid."""
        match = re.fullmatch(r"(?P<node>.+)/c(?P<index>(?:/\d+)*)", path)
        array = match and self.array(match["node"])
        if not array:
            return None
        begin = f"c{match['index']}/"
        return array, [name[len(begin) :] for name in _grid(array) if name.startswith(begin)]

    def list_keys(self, prefix: str = "") -> Iterator[str]:
        """All keys at and below a prefix that is a name."""
        prefix = prefix.strip("/")
        path = self._path(prefix)
        if array := self.array(path):
            yield posixpath.join(prefix, METADATA)
            for name in _grid(array):
                yield posixpath.join(prefix, name)
            return
        if within := self._within(path):
            for name in within[1]:
                yield posixpath.join(prefix, name)
            return
        for name in self.list_directory(prefix):
            key = posixpath.join(prefix, name)
            if name == METADATA or self._native_kind(self._path(key)) == "bytes":
                yield key
            else:
                yield from self.list_keys(key)

    def _native_kind(self, path: str) -> str:
        try:
            return self._native.stat(path)["kind"]
        except DamagedError:
            # Metadata of an array that is plain files to Terrace.
            return "container"


def _has_plain_keys(document: dict[str, Any]) -> bool:
    encoding = document.get("chunk_key_encoding")
    if encoding == "default":
        return True
    separator = ((encoding or {}).get("configuration") or {}).get("separator", "/")
    return (encoding or {}).get("name") == "default" and separator == "/" and not document.get("storage_transformers")


def _is_same_but_shape(array: Array, spec: dict[str, Any]) -> bool:
    return (
        array.dtype == np.dtype(spec["dtype"])
        and array.chunks == tuple(spec["chunks"])
        and array.ndim == len(spec["shape"])
        and array._fill == spec["fill"]
        and array.dimensions == tuple(spec["dimensions"])
    )


def _region(array: Array, index: tuple[int, ...]) -> tuple[slice, ...] | None:
    """The part of a chunk that lies inside the array; None: nothing of it does."""
    starts = [place * extent for place, extent in zip(index, array.chunks)]
    if any(start >= extent for start, extent in zip(starts, array.shape)):
        return None
    return tuple(
        slice(start, min(start + chunk, extent)) for start, chunk, extent in zip(starts, array.chunks, array.shape)
    )


def _chunk_cells(array: Array, index: tuple[int, ...]) -> np.ndarray | None:
    region = _region(array, index)
    if region is None:
        return None
    cells = array.get(region)
    if cells.shape == array.chunks:
        return cells
    # At the array's end a chunk is filled up.
    whole = np.full(array.chunks, array.fill_value, array.dtype)
    whole[tuple(slice(extent) for extent in cells.shape)] = cells
    return whole


def _grid(array: Array) -> Iterator[str]:
    """Keys of an array's chunks below it; the only one of an array without dimensions is `c`."""
    counts = [-(-extent // chunk) for extent, chunk in zip(array.shape, array.chunks)]
    return ("/".join(["c", *map(str, place)]) for place in np.ndindex(*counts))
