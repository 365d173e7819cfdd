"""A Zarr v3 store over staged containers, for zarr-python and what builds on it.

    store = terrace.zarr.TerraceStore(path="study")
    zarr.open_group(store)["temperature"][10:20]
    xarray.open_zarr(store, consolidated=False)
    dataset.to_zarr(store, zarr_format=3, encoding={"temperature": {"compressors": None}})

Arrays that are written without compressors are Terrace's own arrays: each chunk is a put of its region, that other clients
see at once. With codecs they are kept as the files that zarr-python writes, in the tiers all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from .array import Array
from .container import Container, connect
from .keys import ZarrKeys

#: Values of so many bytes are copied in a thread, so that other keys go on meanwhile.
_LARGE = 1 << 18


class TerraceStore(Store):
    """The containers and arrays at and below `path`, as a store.

    session: a session or a container, or what `terrace.connect` takes; without it, that of the run.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_partial_writes = False
    # Metadata is made anew from what is staged whenever it is read; a copy of it would tell how things were.
    supports_consolidated_metadata = False

    def __init__(
        self,
        session: Container | str | None = None,
        path: str = "",
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        if not isinstance(session, Container):
            session = connect(session or "")
        path = "/".join(part for part in (session.name, path.strip("/")) if part)
        self._keys = ZarrKeys(session.session, path)

    @property
    def path(self) -> str:
        return self._keys.base

    def array(self, path: str) -> Array | None:
        """The Terrace array that the store's Zarr array at a path is; None: it is kept as files."""
        return self._keys.array(self._keys._path(path))

    def with_read_only(self, read_only: bool = False) -> "TerraceStore":
        return type(self)(self._keys.session, self.path, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TerraceStore) and (self._keys.session.root, self.path) == (
            other._keys.session.root,
            other.path,
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self):
        return _restore, (self._keys.session, self.path, self.read_only)

    def __str__(self) -> str:
        return f"terrace://{self.path}"

    def __repr__(self) -> str:
        return f"TerraceStore('{self}' in {self._keys.session.root})"

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        await self._ensure_open()
        value = await asyncio.to_thread(self._keys.read, key)
        if value is None:
            return None
        if byte_range is not None:
            value = _cut(value, byte_range)
        return (prototype or default_buffer_prototype()).buffer.from_bytes(value)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._keys.exists(key)

    async def getsize(self, key: str) -> int:
        return self._keys.size(key)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._ensure_open()
        cells: Any = value.as_numpy_array()
        if cells.nbytes >= _LARGE:
            await asyncio.to_thread(self._keys.write, key, cells)
        else:
            self._keys.write(key, cells)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        self._keys.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        self._keys.delete_below(prefix)

    async def clear(self) -> None:
        await self.delete_dir("")

    async def is_empty(self, prefix: str) -> bool:
        return not self._keys.list_directory(prefix)

    async def list(self) -> AsyncIterator[str]:
        for key in self._keys.list_keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        # A prefix need not end where a name does.
        directory = prefix.rpartition("/")[0]
        for key in self._keys.list_keys(directory):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in self._keys.list_directory(prefix):
            yield name


def _restore(session: Container, path: str, read_only: bool) -> TerraceStore:
    return TerraceStore(session, path, read_only=read_only)


def _cut(value: Any, byte_range: ByteRequest) -> Any:
    match byte_range:
        case RangeByteRequest(start, end):
            return value[start:end]
        case OffsetByteRequest(offset):
            return value[offset:]
        case SuffixByteRequest(suffix):
            return value[-suffix:] if suffix else value[:0]
    raise TypeError(f"{byte_range!r} is not a range of bytes")
