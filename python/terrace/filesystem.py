"""An fsspec file system: `terrace://study/table.fits` is the bytes object `study/table.fits` of the session's root.

Arrays look like the directories of Zarr v3 that they become in the root, but are read from where they are staged; so
`zarr.open("terrace://study")` and `xarray.open_zarr("terrace://study")` work too.
"""

from __future__ import annotations

import io
import posixpath
import shutil
from typing import Any

from fsspec.spec import AbstractFileSystem

from .container import connect
from .errors import DamagedError, WrongKindError
from .file import binary_mode, open_object
from .keys import METADATA, ZarrKeys

#: Bytes that are copied at once.
_PIECE = 1 << 22


class _Value(io.BytesIO):
    """A key of an array, written when it is closed."""

    def __init__(self, keys: ZarrKeys, key: str) -> None:
        super().__init__()
        self._keys, self._key = keys, key

    def close(self) -> None:
        if not self.closed:
            self._keys.write(self._key, self.getbuffer())
        super().close()


class TerraceFileSystem(AbstractFileSystem):
    """Bytes objects and containers as files and directories.

    root: what `terrace.connect` takes; without it, the root of the run that this program belongs to.
    """

    protocol = "terrace"
    root_marker = ""
    cachable = False

    def __init__(self, root: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.session = connect(root)
        self._native = self.session._native
        self._keys = ZarrKeys(self.session)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        path = path.removeprefix("terrace://")
        return path.strip("/")

    def _inside_array(self, path: str) -> bool:
        """Whether a path is an array's own key, and no file."""
        directory, name = posixpath.split(path)
        if name == METADATA:
            return True
        return self._keys._chunk(path) is not None or self._keys._within(path) is not None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "size": 0, "type": "directory", "kind": "container"}
        if self._inside_array(path):
            if self._keys._within(path) and not self._keys._chunk(path):
                return {"name": path, "size": 0, "type": "directory", "kind": "chunks"}
            return {"name": path, "size": self._keys.size(path), "type": "file", "kind": "zarr"}
        try:
            found = self._native.stat(path)
        except DamagedError:
            return {"name": path, "size": 0, "type": "directory", "kind": "container"}
        is_file = found["kind"] == "bytes"
        return {
            "name": path,
            "size": found["bytes"] if is_file else 0,
            "type": "file" if is_file else "directory",
            "kind": found["kind"],
            "tier": found["tier"],
            "durable": found["is_durable"],
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found = self.info(path)
        if found["type"] == "file":
            names = [path]
        else:
            names = [posixpath.join(path, name) for name in self._names(path)]
        return [self.info(name) for name in names] if detail else names

    def _names(self, path: str) -> list[str]:
        names = self._keys.list_directory(path)
        # A container without metadata of its own has the file only for who asks for it.
        if METADATA in names and not self._keys.array(path) and self._keys._document(path) is None:
            names.remove(METADATA)
        return names

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        binary, _ = binary_mode(mode)
        if not self._inside_array(path):
            if binary[0] != "r" and (parent := posixpath.dirname(path)):
                self._native.create_container(parent, "if missing")
            return open_object(self._native, path, binary, None, None, None)
        if binary not in ("rb", "wb", "xb"):
            raise WrongKindError(f"`{path}` belongs to an array: it can be read or replaced, not changed in parts")
        if binary != "rb":
            return _Value(self._keys, path)
        value = self._keys.read(path)
        if value is None:
            raise FileNotFoundError(path)
        return io.BytesIO(value)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with self._open(path) as file:
            size = file.seek(0, 2)
            first, last, _ = slice(start, end).indices(size)
            file.seek(first)
            return file.read(max(0, last - first))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        with self._open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        parent = posixpath.dirname(path)
        if not create_parents and parent and not self.exists(parent):
            raise FileNotFoundError(parent)
        self._native.create_container(path, "new")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._native.create_container(self._strip_protocol(path), "if missing" if exist_ok else "new")

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self._open(path1) as source, self._open(path2, "wb") as target:
            shutil.copyfileobj(source, target, _PIECE)

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if self._inside_array(path):
            self._keys.delete(path)
        else:
            self._native.remove(path, False)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rmdir(self, path: str) -> None:
        self._native.remove(self._strip_protocol(path), False)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            for name in self.expand_path(one) if "*" in str(one) else [self._strip_protocol(one)]:
                if self.info(name)["type"] == "file":
                    self.rm_file(name)
                else:
                    self._native.remove(name, recursive)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        self._native.create_bytes(path, "replace" if truncate else "if missing").close()

    def sync_to_root(self, path: str = "") -> None:
        """Makes durable what lies at and below a path."""
        self._native.flush(self._strip_protocol(path))
