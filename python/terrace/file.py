"""Bytes objects as file objects."""

from __future__ import annotations

import io
import os
from typing import Any

from . import _native

_KIND = io.BufferedIOBase

#: How much a line's end is looked for in at once.
_PEEK = 8192


class ObjectFile(_KIND):
    """A bytes object as a binary file: what `open` gives, so that it can be handed to whatever takes a file.

    Small writes are gathered; `flush` and `close` publish them, and every other program sees them. Positions
    are bytes.
    """

    def __init__(self, native: _native.Bytes, name: str, mode: str) -> None:
        self._native = native
        self.name = name
        self.mode = mode
        self._position = 0
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "rb"
        self._appends = "a" in mode
        if self._appends:
            self._position = len(native)

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """Length in bytes, with what was written and is not published yet."""
        return len(self._native)

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not allowed:
            raise io.UnsupportedOperation(f"`{self.name}` was not opened for {what}")

    def readinto(self, buffer: Any) -> int:
        """Reads into a writable buffer, without another copy. Fewer bytes only at the end."""
        self._check(self._reads, "reading")
        count = self._native.read_into(self._position, buffer)
        self._position += count
        return count

    readinto1 = readinto

    def read(self, size: int | None = -1, /) -> bytes:
        self._check(self._reads, "reading")
        if size is None or size < 0:
            size = max(0, len(self._native) - self._position)
        buffer = bytearray(size)
        count = self.readinto(buffer)
        return bytes(buffer) if count == size else bytes(memoryview(buffer)[:count])

    read1 = read

    def peek(self, size: int = 0, /) -> bytes:
        """Bytes that come next, without moving on."""
        self._check(self._reads, "reading")
        buffer = bytearray(max(size, _PEEK))
        return bytes(memoryview(buffer)[: self._native.read_into(self._position, buffer)])

    def write(self, buffer: Any, /) -> int:
        self._check(self._writes, "writing")
        if self._appends:
            count = memoryview(buffer).nbytes
            self._position = self._native.append(buffer) + count
            return count
        count = self._native.write(self._position, buffer)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check(True, "seeking")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        if base is None:
            if whence != os.SEEK_END:
                raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            base = len(self._native)
        if base + offset < 0:
            raise ValueError(f"negative seek value {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._check(True, "telling")
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self._writes, "writing")
        size = self._position if size is None else size
        self._native.set_length(size)
        return size

    def flush(self) -> None:
        """Publishes what was written."""
        if not self.closed and self._writes:
            self._native.flush()

    def sync(self) -> None:
        """Publishes, and makes it as safe as its tier is."""
        self._check(self._writes, "writing")
        self._native.sync()

    def close(self) -> None:
        """Publishes and closes. A failure to publish is raised, and the file is closed."""
        if self.closed:
            return
        try:
            self._native.close()
        finally:
            # The base class flushes what it closes: that is done.
            self._writes = False
            super().close()

    def __repr__(self) -> str:
        return f"<terrace.ObjectFile `{self.name}`, mode {self.mode!r}>"


def binary_mode(mode: str) -> tuple[str, bool]:
    """A mode in one spelling, and whether it is for text: `("rb", True)` for `"r"`."""
    letters = set(mode)
    kinds = letters & set("rwxa")
    if len(kinds) != 1 or letters - set("rwxabt+") or len(letters) != len(mode) or {"b", "t"} <= letters:
        raise ValueError(f"invalid mode: {mode!r}")
    return kinds.pop() + "b" + ("+" if "+" in letters else ""), "b" not in letters


def open_object(
    session: _native.Session,
    name: str,
    mode: str,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> ObjectFile | io.TextIOWrapper:
    binary, is_text = binary_mode(mode)
    if not is_text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    match binary[0]:
        case "r":
            native = session.open_bytes(name, binary != "rb")
        case "w":
            native = session.create_bytes(name, "replace")
        case "x":
            native = session.create_bytes(name, "new")
        case _:
            native = session.create_bytes(name, "if missing")
    file = ObjectFile(native, name, binary)
    return io.TextIOWrapper(file, encoding or "utf-8", errors, newline) if is_text else file
