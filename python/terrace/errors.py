"""What can go wrong, as one exception for each kind. Each is also the built-in exception that comes nearest.

Every message names the thing that failed; `hint` says what to do, where that is known.
"""

from __future__ import annotations

import errno as _errno


class TerraceError(Exception):
    """Base of all errors of Terrace. `message` says what failed and on what; `hint` what to do about it, or is None."""

    errno: int | None = None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if isinstance(self, OSError):
            self.errno = type(self)._number
            self.strerror = message

    _number: int | None = None

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self):
        return type(self), (self.message, self.hint)


class NotFoundError(TerraceError, FileNotFoundError, KeyError):
    """There is no object of this name."""

    _number = _errno.ENOENT


class ExistsError(TerraceError, FileExistsError):
    """The name is taken."""

    _number = _errno.EEXIST


class WrongKindError(TerraceError, TypeError):
    """Another kind of object than the call needs, or one that was opened for reading only."""


class InvalidError(TerraceError, ValueError):
    """A type, rank, count or option that makes no sense."""


class OutOfBoundsError(TerraceError, IndexError):
    """A region that does not lie inside the array, or a read past an object's end."""


class NoSpaceError(TerraceError, OSError):
    """The last tier is full."""

    _number = _errno.ENOSPC


class BusyError(TerraceError, TimeoutError):
    """A lock, an object or a transfer was not to be had in the time given."""

    _number = _errno.ETIMEDOUT


class NoAgentError(TerraceError, ConnectionError):
    """No agent answers."""

    _number = _errno.ECONNREFUSED


class DeniedError(TerraceError, PermissionError):
    """The token is wrong, or the files belong to another user."""

    _number = _errno.EACCES


class ProtocolError(TerraceError, ConnectionError):
    """The peer does not speak this version of Terrace's language."""

    _number = _errno.EPROTO


class SystemCallError(TerraceError, OSError):
    """The operating system said no."""

    _number = _errno.EIO


class DamagedError(TerraceError, OSError):
    """The object's files are damaged."""

    _number = _errno.EIO


#: The client's numbers of the kinds.
BY_KIND: dict[int, type[TerraceError]] = {
    1: NotFoundError,
    2: ExistsError,
    3: WrongKindError,
    4: InvalidError,
    5: OutOfBoundsError,
    6: NoSpaceError,
    7: BusyError,
    8: NoAgentError,
    9: DeniedError,
    10: ProtocolError,
    11: SystemCallError,
    12: DamagedError,
}
