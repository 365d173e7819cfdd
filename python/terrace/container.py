"""Sessions, and containers as mappings."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

import numpy as np

from . import _native
from .array import Array, data_type_name
from .errors import BusyError, InvalidError, NotFoundError, TerraceError
from .file import ObjectFile, open_object
from .query import SAVIME, QueryState, Result, Worker
from .stager import Stager, Steps
from .tags import Tags, plain

Create = Literal["new", "replace", "if missing"]
Placement = Literal["local", "spread", "one"]

_ANY: Any = object()


@dataclass(frozen=True)
class Status:
    """What is known of an object."""

    #: "container", "bytes" or "array".
    kind: str
    #: Of a bytes object; of an array all its cells'.
    bytes: int
    #: The tier that has the newest bytes; "root" when all is durable and nothing is nearer.
    tier: str
    #: Nothing is newer than what the root's own storage has.
    is_durable: bool
    #: An array's: dtype, shape, unlimited, chunks, fill, dimensions, placement.
    spec: dict[str, Any] | None


class Bytes:
    """A bytes object that is not open: a file, to programs. `open` gives a file object."""

    __slots__ = ("_session", "name")

    def __init__(self, session: "Session", name: str) -> None:
        self._session = session
        self.name = name

    def open(self, mode: str = "rb", **text: Any) -> Any:
        """As `Container.open`."""
        return self._session.open(self.name, mode, **text)

    def read(self) -> bytes:
        """All of it."""
        with self.open() as file:
            return file.read()

    @property
    def size(self) -> int:
        return self._session.stat(self.name).bytes

    @property
    def tags(self) -> Tags:
        return Tags(self._session._native, self.name)

    def __repr__(self) -> str:
        return f"<terrace.Bytes `{self.name}`>"


def _name_of(object: str | Array | Bytes) -> str:
    return object if isinstance(object, str) else object.name


class Container(Mapping[str, Union["Container", Array, Bytes]]):
    """A directory of the namespace, as a mapping from names to containers, arrays and bytes objects.

    Names are relative to it, and may have several parts ("run1/temperature"). Setting a name to an array creates an array of
    its type and shape and puts it; setting it to bytes creates a bytes object. Iterating gives what lies directly in it.
    """

    def __init__(self, session: "Session", name: str) -> None:
        self._session = session
        #: Path below the root; "" is the root itself.
        self.name = name

    @property
    def session(self) -> "Session":
        return self._session

    @property
    def _native(self) -> _native.Session:
        return self._session._native_session

    def _path(self, name: str) -> str:
        name = os.fspath(name)
        return posixpath.join(self.name, name) if self.name and not name.startswith("/") else name

    # Mapping

    def __getitem__(self, name: str) -> Union["Container", Array, Bytes]:
        path = self._path(name)
        match self._native.stat(path)["kind"]:
            case "container":
                return Container(self._session, path)
            case "array":
                return self.open_array(name)
            case _:
                return Bytes(self._session, path)

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, (bytes, bytearray, memoryview)):
            with self.open(name, "wb") as file:
                file.write(value)
            return
        value = np.asarray(value)
        array = self.create_array(name, value.shape, value.dtype, create="replace")
        array.put(..., value)

    def __delitem__(self, name: str) -> None:
        self.remove(name, recursive=True)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._native.list(self.name))

    def __len__(self) -> int:
        return len(self._native.list(self.name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._native.exists(self._path(name))

    # Objects

    def create_container(self, name: str, create: Create = "if missing") -> "Container":
        """Creates a container, with those that it lies in. `create="new"`: ExistsError if it is there."""
        path = self._path(name)
        self._native.create_container(path, create)
        return Container(self._session, path)

    def create_array(
        self,
        name: str,
        shape: Sequence[int] | int,
        dtype: Any = np.float64,
        *,
        chunks: Sequence[int] | int | None = None,
        fill_value: Any = None,
        unlimited: Sequence[int] = (),
        dimensions: Sequence[str] = (),
        placement: Placement = "spread",
        create: Create = "new",
    ) -> Array:
        """Creates an array of up to 8 dimensions, and the containers that it lies in.

        shape: cells in each dimension; 0 is allowed where the dimension grows; () is one cell.
        dtype: bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, S1, S2, ... for byte strings, U1, U2, ...
            for texts, or datetime64 and timedelta64 in D, h, m, s, ms, us or ns.
        chunks: cells of one chunk of the durable form (about 4 MiB if not given).
        fill_value: what cells read as that were never put (zero, and an empty string, if not given).
        unlimited: numbers of the dimensions that grow with what is put.
        dimensions: names; arrays of a container that share names share dimensions, as in xarray.
        placement: which agents keep it, where there are several: all ("spread"), that of its creator ("local"), or "one".
        create: "new" (ExistsError if the name is taken), "replace", or "if missing" (an array of the same type is opened).
        """
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        chunks = () if chunks is None else (chunks,) * len(shape) if isinstance(chunks, int) else tuple(chunks)
        kind = data_type_name(dtype)
        fill = np.zeros((), kind)
        if fill_value is not None:
            fill[()] = fill_value
        grows = [False] * len(shape)
        for dimension in unlimited:
            if not -len(shape) <= dimension < len(shape):
                raise InvalidError(f"dimension {dimension} can't be unlimited: the array has {len(shape)} dimensions")
            grows[dimension] = True
        if any(extent < 0 for extent in (*shape, *chunks)):
            raise InvalidError(f"an array of shape {shape} with chunks of {chunks} cells")
        path = self._path(name)
        if parent := posixpath.dirname(path):
            self._native.create_container(parent, "if missing")
        native = self._native.create_array(
            path, kind, shape, grows, chunks, fill.tobytes(), list(dimensions), placement, create
        )
        return Array(self._session, native, path)

    def open_array(self, name: str, mode: Literal["r", "r+"] | None = None) -> Array:
        """Opens an array; a Zarr v3 array that lies below the root is one too.

        mode: "r" for reading, "r+" for writing too; if not given, for writing where its chunks are not encoded.
        """
        path = self._path(name)
        if mode == "r":
            return Array(self._session, self._native.open_array(path, False), path)
        try:
            return Array(self._session, self._native.open_array(path, True), path)
        except TypeError:
            if mode == "r+":
                raise
            return Array(self._session, self._native.open_array(path, False), path)

    def open(
        self,
        name: str,
        mode: str = "rb",
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Opens a bytes object as a file object. Modes are those of the built-in `open` (r, w, x, a, with b, t, +); text is
        UTF-8 unless an encoding is given.
        """
        path = self._path(name)
        if mode[:1] in ("w", "x", "a") and (parent := posixpath.dirname(path)):
            self._native.create_container(parent, "if missing")
        return open_object(self._native, path, mode, encoding, errors, newline)

    def stat(self, name: str = "") -> Status:
        """What is known of an object. Raises NotFoundError."""
        return Status(**self._native.stat(self._path(name)))

    def exists(self, name: str) -> bool:
        return self._native.exists(self._path(name))

    def kinds(self) -> dict[str, str]:
        """What lies directly in it: "container", "array" or "bytes", by name."""
        return dict(self._native.list(self.name))

    def remove(self, name: str, recursive: bool = False) -> None:
        """Removes an object and its tags; a container that is not empty only if `recursive`."""
        self._native.remove(self._path(name), recursive)

    def rename(self, name: str, to: str) -> None:
        """Gives an object another name in this container, with its tags and all that lies below it. Raises ExistsError if there is one of
        that name. Arrays that are open are to be opened again.
        """
        self._native.rename(self._path(name), self._path(to))

    # Objects in several containers

    def add_member(self, object: str | Array | Bytes) -> None:
        """Makes an array or a bytes object, given as such or by its name from the root on, a member of this container, too."""
        self._native.add_member(self.name, _name_of(object))

    def remove_member(self, object: str | Array | Bytes) -> None:
        """Ends what `add_member` began; the object stays. Raises NotFoundError when it is no member."""
        self._native.remove_member(self.name, _name_of(object))

    def members(self) -> list[str]:
        """Names, from the root on, of the arrays and bytes objects that lie in this container or were added to it, sorted."""
        return self._native.members(self.name)

    def containers_of(self, name: str) -> list[str]:
        """Names, from the root on, of the containers that an object in this one is in; the root is ""."""
        return self._native.containers_of(self._path(name))

    def wait_for(self, name: str, timeout: float | None = None) -> Status:
        """Waits, in seconds, until there is an object of this name. Raises BusyError when there is none in time."""
        found = self._native.wait_for(self._path(name), timeout)
        if found is None:
            raise BusyError(f"`{self._path(name)}` did not appear within {timeout} s")
        return Status(**found)

    # Steps

    def steps(self, from_step: int = 0, arrays: Sequence[str] = (), timeout: float | None = None) -> Steps:
        """The container's steps from `from_step` on, each when it is whole: all arrays that grow have all of its cells.

        arrays: names of those that a step has to have (all that grow, if not given; an array that is made later is not waited
        for). timeout: the iteration ends when the next step is not whole within so many seconds.
        """
        return Steps(self._native.steps(self.name, from_step, list(arrays)), timeout)

    # Where the bytes are

    def flush(self, name: str = "") -> None:
        """Makes durable in the root what lies at and below a name, whatever policy says of it."""
        self._native.flush(self._path(name))

    def evict(self, name: str = "") -> None:
        """Frees the faster tiers of what lies at and below a name, flushing first what is not durable."""
        self._native.evict(self._path(name))

    def prefetch(self, name: str = "") -> None:
        """Brings files at and below a name into the faster tiers."""
        self._native.prefetch(self._path(name))

    # Tags

    @property
    def tags(self) -> Tags:
        """The container's own tags."""
        return Tags(self._native, self.name)

    def tags_of(self, name: str) -> Tags:
        """The tags of an object in it."""
        return Tags(self._native, self._path(name))

    def find(
        self,
        key: str,
        value: Any = _ANY,
        *,
        low: Any = None,
        high: Any = None,
        prefix: str | None = None,
        suffix: str | None = None,
        infix: str | None = None,
        like: str | None = None,
    ) -> list[str]:
        """Names, below the root, of objects in this container (at any depth) whose tag matches; sorted.

        Without more, those that have the key. `value`: equal to it. `low`, `high`: between them, both included (numbers with
        numbers, texts with texts). `prefix`, `suffix`, `infix`: texts that begin with, end with, or contain it.
        `like`: values that fit a pattern (`*`: any text, `?`: one character); `key` is a pattern then, too.
        """
        asked: list[tuple[str, tuple[Any, ...]]] = []
        if value is not _ANY:
            asked.append(("exact", (plain(value),)))
        if low is not None or high is not None:
            asked.append(("range", (plain(low), plain(high))))
        asked += [
            (how, (text,))
            for how, text in (("prefix", prefix), ("suffix", suffix), ("infix", infix), ("like", like))
            if text is not None
        ]
        found: list[str] | None = None
        for how, operands in asked or [("any", ())]:
            names = self._native.query(key, how, operands, self.name)
            found = names if found is None else sorted(set(found) & set(names))
        return found or []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Container):
            return NotImplemented
        return (self.name, self._session.root) == (other.name, other._session.root)

    def __hash__(self) -> int:
        return hash((self.name, self._session.root))

    def __reduce__(self):
        return Container, (self._session, self.name)

    def __repr__(self) -> str:
        return f"<terrace.Container `{self.name}` in {self._session.root}>"


class Session(Container):
    """One root, seen by this program; as a container it is the root. See `terrace.connect`.

    May be used by several threads. After a fork the child goes on with what it inherited.
    """

    def __init__(self, native: _native.Session, target: str) -> None:
        super().__init__(self, "")
        self._native_session = native
        self._target = target
        self._worker: Worker | None = None
        self._query_limits: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """Path of the directory that the run accelerates."""
        return self._native_session.root

    @property
    def is_local(self) -> bool:
        """Whether the agent is on this node."""
        return self._native_session.is_local

    @property
    def agents(self) -> tuple[str, ...]:
        """Where the root's agents listen, as ADDRESS:PORT, by their numbers; empty where there is one, on this node."""
        return self._native_session.addresses

    def sql(self, query: str) -> Result:
        """Asks a query. Tables are containers whose arrays share dimensions, by name: `SELECT x, avg(v) FROM study GROUP BY x`,
        `FROM "study/run1"`; `terrace.objects`, `terrace.tags` and others are the catalogue. Needs pyarrow.
        """
        return self._queries().ask(query)

    def savime(self, commands: str) -> Result:
        """Runs commands of SAVIME's language, ended by semicolons, and answers as the last one does: a query's rows, or one row
        that says what was done. TARs are containers whose arrays share dimensions: `aggregate(where(study, v > 1), avg, v, mean, x);`
        Files named `@path` are this program's own. Needs pyarrow.
        """
        return self._queries().ask(commands, SAVIME)

    def queries(self) -> list[QueryState]:
        """Queries of all programs on this root: those that run first, then the last that ended, the latest first."""
        return self._queries().states()

    def cancel_query(self, id: str) -> None:
        """Ends a query of any program on this root, and returns when it has ended. One that does not run is a NotFoundError."""
        self._queries().cancel(id)

    def limit_queries(
        self,
        *,
        memory: str | int | None = None,
        timeout: str | float | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> None:
        """What this session's queries may take; to be said before the first one.

        memory: bytes, or a text ("4GiB", "20%" of what is free). A query that needs more fails, or goes on in the directory `spill`
        where it sorts, groups by values or joins. timeout: seconds, or a text ("5min"). threads: without it, one for each processor.
        """
        if self._worker is not None:
            raise InvalidError("queries were asked already", "limit the queries of a session before its first one")
        told = {
            "--memory": memory,
            "--query-timeout": f"{timeout}s" if isinstance(timeout, int | float) else timeout,
            "--spill": None if spill is None else os.path.abspath(spill),
            "--threads": threads,
        }
        self._query_limits = tuple(word for flag, value in told.items() if value is not None for word in (flag, str(value)))

    def _queries(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._native_session, self._target, self._query_limits)
        return self._worker

    def stager(
        self, queue_bytes: int = 256 << 20, full: Literal["block", "drop"] = "block", threads: int = 1
    ) -> Stager:
        """A queue of puts that are not waited for, of so many bytes. A put that it has no room for waits, or is dropped."""
        if full not in ("block", "drop"):
            raise InvalidError(f"`{full}` is neither block nor drop")
        return Stager(self._native.stager(queue_bytes, full == "drop", threads))

    def __reduce__(self):
        return _connect_again, (self._target, self.root, self.agents, self._query_limits)

    def __repr__(self) -> str:
        return f"<terrace.Session of {self.root}>"


def connect(target: str | os.PathLike[str] = "") -> Session:
    """Connects to the agent of a root.

    target: the root's path. Without it, the root of the run that this program belongs to (`terrace run` and `terrace serve`
    set TERRACE_INDEX), or else that of TERRACE_ROOT. "tcp://HOST:PORT" is an agent elsewhere; its token is in TERRACE_TOKEN, or
    in the file that TERRACE_TOKEN_FILE names.

    Raises NoAgentError when no agent serves the root, with the command that starts one.
    """
    target = os.fspath(target)
    if not target and "TERRACE_INDEX" not in os.environ:
        # Said, so that another process knows it too.
        target = os.environ.get("TERRACE_AGENT") or os.environ.get("TERRACE_ROOT", "")
    return Session(_native.Session.connect(target), target)


def _connect_again(target: str, root: str, agents: tuple[str, ...], limits: tuple[str, ...]) -> Session:
    """A session as another process had it, perhaps on another node: with the agent of this process's node, if one is there."""
    session = _connect_near(root, agents if "://" in target else None) or connect(target or root)
    session._query_limits = limits
    return session


def _connect_near(root: str, agents: tuple[str, ...] | None) -> Session | None:
    """By what this process's environment says, or by the root's path. `agents`: only if it is one of these. A path alone does not tell:
    each node may have a directory of its own there.
    """
    if agents == ():
        return None
    for target in ([""] if "TERRACE_INDEX" in os.environ else []) + [root]:
        try:
            session = connect(target)
        except TerraceError:
            continue
        if session.root == root and agents in (None, session.agents):
            return session
    return None


__all__ = ["Bytes", "Container", "NotFoundError", "ObjectFile", "Session", "Status", "connect"]
