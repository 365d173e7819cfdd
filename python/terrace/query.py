"""SQL on the arrays of a session: the answers as Arrow, pandas, NumPy or xarray.

Queries are answered by the program `terrace-query`, which is started when the first one is asked and maps the arrays where they
lie. It writes rows once, into memory that this program maps; few of them come by a pipe. pyarrow reads them.
"""

from __future__ import annotations

import datetime
import json
import mmap
import os
import shutil
import socket
import struct
import subprocess
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidError, NotFoundError, SystemCallError, TerraceError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import xarray

    from . import _native


# For a query of another program to end.
CANCEL_PATIENCE_S = 10.0


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise TerraceError("answers to queries need pyarrow", "pip install pyarrow, or the package's extra: terrace[sql]") from error
    return pyarrow


def _program() -> str:
    """`terrace-query`: named by TERRACE_QUERY, or on the path, or beside `terrace`."""
    named = os.environ.get("TERRACE_QUERY")
    if named:
        return named
    if found := shutil.which("terrace-query"):
        return found
    terrace = shutil.which("terrace")
    if terrace and os.access(beside := os.path.join(os.path.dirname(os.path.realpath(terrace)), "terrace-query"), os.X_OK):
        return beside
    raise NotFoundError("the program terrace-query is not on the path", "set TERRACE_QUERY to where `make build` put it (target/release)")


def _numpy(column: Any) -> np.ndarray:
    """A column. Complex numbers come as lists of two floats, the real part first, and one that is missing is NaN; vectors are rows."""
    pyarrow = _pyarrow()
    # One chunk is no copy.
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pyarrow.ChunkedArray):
        column = pyarrow.concat_arrays(column.chunks) if column.num_chunks else pyarrow.array([], column.type)
    types = pyarrow.types
    if not _is_complex(column.type):
        if types.is_fixed_size_list(column.type) and types.is_primitive(column.type.value_type) and not column.null_count:
            return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
        return column.to_numpy(zero_copy_only=False)
    # The parts of those that are there.
    parts = column.flatten().to_numpy(zero_copy_only=False)
    numbers = parts.view(np.complex64 if parts.dtype == np.float32 else np.complex128)
    if column.null_count:
        all_numbers = np.full(len(column), np.nan, numbers.dtype)
        all_numbers[column.is_valid().to_numpy(zero_copy_only=False)] = numbers
        return all_numbers
    return numbers


def _is_complex(kind: Any) -> bool:
    types = _pyarrow().types
    if not types.is_fixed_size_list(kind) or kind.list_size != 2:
        return False
    item = kind.value_field
    return item.name == "item" and not item.nullable and (types.is_float32(item.type) or types.is_float64(item.type))


# The text is of SAVIME's language: the highest bit of its length; and the fourth one: rows are wanted in chunks.
SAVIME = 1 << 31
_IN_CHUNKS = 1 << 28
# What is asked of an answer by a byte.
_SOME, _ALL, _NO_MORE = b"\0", b"\1", b"\2"
# What it says by one, and what a chunk is.
_ROWS, _CHUNK, _LAST_CHUNK = 0, 2, 3
_INLINE, _STREAM = 1, 2
# Columns of a segment are so far apart.
_SLOT_BYTES = 1 << 40
# Mappings that are kept for the next rows in the same memory.
_MAPPINGS_MAX = 32
# Instead of a segment's number: what was lent is never let go of.
_KEEP = struct.pack("<I", 0)


class _Lending:
    """Where descriptors of memory come from, and what is let go of is told. Closed when nobody has any of it."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self._pid = os.getpid()
        #: By numbers of segments and slots. The memory is the program's to use again, or to give back, when it was told that nobody looks.
        self._mappings: dict[tuple[int, int], mmap.mmap] = {}
        # Not by __del__: in a cycle the socket may be collected before this, with a warning.
        weakref.finalize(self, ours.close)

    def mapped(self, descriptor: int, segment: int, slot: int, count: int) -> mmap.mmap:
        """Of at least so many bytes."""
        mapping = self._mappings.pop((segment, slot), None)
        if mapping is None or len(mapping) < count:
            mapping = mmap.mmap(descriptor, count, flags=_MAPPED, prot=mmap.PROT_READ, offset=slot * _SLOT_BYTES)
        self._mappings[segment, slot] = mapping
        # Those that were asked for last stay. One that is looked at is unmapped when nobody does any more.
        for oldest in list(self._mappings)[:-_MAPPINGS_MAX]:
            self._mappings.pop(oldest, None)
        return mapping

    def forget(self) -> None:
        """What is looked at stays until nobody does; nothing else is kept."""
        self._mappings.clear()

    def tell(self, number: bytes) -> None:
        # A child's are its parent's, who has told that they stay.
        if self._pid == os.getpid():
            try:
                self.socket.send(number)
            except OSError:  # the program has ended
                pass


class _Lent:
    """Rows in memory of the program that answers; it is told when nobody here looks at them any more."""

    def __init__(self, lending: _Lending, number: int) -> None:
        self._lending = lending
        self._number = struct.pack("<I", number)

    def __del__(self) -> None:
        self._lending.tell(self._number)


# Flags of mappings: their pages are mapped at once.
_MAPPED = mmap.MAP_SHARED | mmap.MAP_POPULATE


def _column(kind: Any, rows: int, buffer: Any) -> Any:
    pyarrow = _pyarrow()
    if pyarrow.types.is_fixed_size_list(kind):
        values = _column(kind.value_type, rows * kind.list_size, buffer)
        return pyarrow.Array.from_buffers(kind, rows, [None], 0, children=[values])
    return pyarrow.Array.from_buffers(kind, rows, [None, buffer], 0)


def _bytes_of_row(kind: Any) -> int:
    if _pyarrow().types.is_fixed_size_list(kind):
        return kind.list_size * _bytes_of_row(kind.value_type)
    return kind.bit_width // 8


@dataclass(frozen=True)
class QueryState:
    """What is known of a query of any program on a session's root."""

    id: str
    #: User and program.
    who: str
    sql: str
    #: running, finished, failed, cancelled, timed out, left (whoever asked was gone first) or died (its program was).
    state: str
    #: In UTC.
    started: datetime.datetime
    elapsed: datetime.timedelta
    #: Told so far.
    rows: int
    bytes: int
    #: Read so far, and known to be read in all.
    cells: int
    planned: int
    memory_bytes_peak: int
    error: str | None

    @property
    def progress(self) -> float | None:
        """The share of its cells that was read, 0 to 1; None where that is not known."""
        if self.state == "finished":
            return 1.0
        return min(1.0, self.cells / self.planned) if self.planned else None


def _state(told: str) -> QueryState:
    found = json.loads(told)
    return QueryState(
        started=datetime.datetime.fromtimestamp(found["started_us"] / 1e6, datetime.UTC),
        elapsed=datetime.timedelta(microseconds=found["elapsed_us"]),
        sql=found["text"],
        **{name: found[name] for name in ("id", "who", "state", "rows", "bytes", "cells", "planned", "memory_bytes_peak", "error")},
    )


class Worker:
    """The program that answers a session's queries, one after the other. Started when it is needed, ended with the session."""

    _all: weakref.WeakSet[Worker] = weakref.WeakSet()

    def __init__(self, native: _native.Session, target: str, limits: tuple[str, ...] = ()) -> None:
        self._native = native
        self._target = target
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: weakref.finalize | None = None
        self._lending: _Lending | None = None
        self._pid = 0
        #: Whose rows are not all told, and whether a chunk of them was asked for and not received.
        self._open: weakref.ref[Result] | None = None
        self._is_asked = False
        self._lock = threading.RLock()
        Worker._all.add(self)

    def _started(self) -> subprocess.Popen[bytes]:
        # After a fork the pipes are the parent's.
        if self._process is None or self._pid != os.getpid() or self._process.poll() is not None:
            self.end()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._lending = _Lending(ours)
            command = [_program(), "worker", "--lend", str(theirs.fileno()), *self._limits]
            if self._target:
                command += ["--connect", self._target]
            pipe = subprocess.PIPE
            try:
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[theirs.fileno()])
            except OSError as error:
                raise SystemCallError(f"{command[0]} can't be run: {error}") from error
            finally:
                theirs.close()
            self._pid = os.getpid()
            # Not by __del__: in a cycle the pipes may be collected before their worker, with a warning.
            self._ending = weakref.finalize(self, _end, self._process, self._pid)
            self._open, self._is_asked = None, False
        return self._process

    def _say(self, said: bytes) -> None:
        self._process.stdin.write(said)
        self._process.stdin.flush()

    def ask(self, query: str, flags: int = 0) -> Result:
        pyarrow = _pyarrow()
        with self._lock:
            self._finish_open()
            self._started()
            text = query.encode()
            try:
                self._say(struct.pack("<I", len(text) | flags | _IN_CHUNKS) + text)
                went_well = self._byte() == _ROWS
                if went_well:
                    id, schema = self._told("<I").decode(), self._told("<I")
            except (BrokenPipeError, EOFError):
                raise self._died() from None
            if not went_well:
                raise self._error()
            result = Result(self, id, pyarrow.ipc.open_stream(pyarrow.py_buffer(schema)).schema)
            self._open = weakref.ref(result)
            return result

    def _finish_open(self) -> None:
        """Whoever has the answer before keeps its rows; if nobody has it, they are not made."""
        if self._open is None or self._pid != os.getpid() or self._process is None:
            return
        result, self._open = self._open(), None
        if result is not None:
            result._finish()
            return
        try:
            if self._is_asked:
                self._is_asked = False
                told = self._byte()
                if told in (_CHUNK, _LAST_CHUNK):
                    self._chunk(None)
                elif told != _ROWS:
                    self._error()
                if told != _CHUNK:
                    return
            self._say(_NO_MORE)
            self._byte()
        except (BrokenPipeError, EOFError):
            self._died()

    def _chunk(self, schema: pyarrow.Schema | None) -> list[Any]:
        """Batches of the chunk that is told now."""
        pyarrow = _pyarrow()
        form = self._byte()
        if form == _INLINE:
            stream = self._told("<Q")
            return [] if schema is None else pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all().to_batches()
        number, length = struct.unpack("<IQ", self._read(12))
        packet, descriptors, _, _ = socket.recv_fds(self._lending.socket, 4, 1)
        if not descriptors or packet != struct.pack("<I", number):
            self._process.kill()
            raise EOFError
        try:
            lending = self._lending
            lent = _Lent(lending, number)

            def mapped(place: int, count: int) -> Any:
                whole = pyarrow.py_buffer(lending.mapped(descriptors[0], number, place, count))
                return pyarrow.foreign_buffer(whole.address, count, base=(lent, whole))

            if schema is None:
                return []
            if form == _STREAM:
                return pyarrow.ipc.open_stream(mapped(0, length)).read_all().to_batches()
            columns = [
                _column(field.type, length, mapped(place, length * _bytes_of_row(field.type)))
                for place, field in enumerate(schema)
            ]
            return [pyarrow.RecordBatch.from_arrays(columns, schema=schema)]
        finally:
            os.close(descriptors[0])

    def _told(self, length: str) -> bytes:
        (count,) = struct.unpack(length, self._read(struct.calcsize(length)))
        return self._read(count)

    def _read(self, count: int) -> bytes:
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _byte(self) -> int:
        return self._read(1)[0]

    def _error(self) -> TerraceError:
        (length,) = struct.unpack("<I", self._read(4))
        message, _, hint = self._read(length).decode().partition("\0")
        return InvalidError(message, hint or None)

    def _died(self) -> TerraceError:
        process = self._process
        said = process.stderr.read().decode(errors="replace").strip()
        self.end()
        return TerraceError(f"the program that answers queries has ended ({process.returncode})", said or None)

    def states(self) -> list[QueryState]:
        """Of all programs on this root: those that run first, then by their start, the latest first."""
        return [_state(told) for told in self._native.queries()]

    def cancel(self, id: str) -> None:
        self._native.cancel_query(id, CANCEL_PATIENCE_S)

    def keep(self) -> None:
        """A child is about to be, which sees what was lent as its parent does: it is not written again."""
        if self._lending is not None:
            self._lending.forget()
            self._lending.tell(_KEEP)

    def end(self) -> None:
        self._process = None
        # What was lent is looked at for as long as it is mapped.
        if self._lending is not None:
            self._lending.forget()
        self._lending = None
        if self._ending is not None:
            self._ending()


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """Of process `pid`: a child leaves its parent's as it is."""
    if pid != os.getpid():
        return
    for pipe in (process.stdin, process.stdout, process.stderr):
        try:
            pipe.close()
        except OSError:
            pass
    process.wait()


def _keep_all() -> None:
    for worker in list(Worker._all):
        worker.keep()


os.register_at_fork(before=_keep_all)


class Result:
    """Rows of a query. They come while they are read; asking the next query reads what is left of this one into memory.

    Arrow arrays and NumPy arrays of numbers are the memory that `terrace-query` has written: they can't be changed.

    Speaks Arrow's C stream interface, so `polars.from_arrow(result)`, `duckdb`, `pyarrow.table(result)` and others take it as it is.
    """

    def __init__(self, worker: Worker, id: str, schema: pyarrow.Schema) -> None:
        self._worker = worker
        self._ready: list[Any] = []
        self._is_whole = False
        self._failure: TerraceError | None = None
        #: By which the query is in the list of queries.
        self.id = id
        self.schema: pyarrow.Schema = schema

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows not read yet, as they come."""
        while (batch := self._next(_SOME)) is not None:
            yield batch

    __iter__ = batches

    def _next(self, wanted: bytes) -> Any:
        """`wanted`: how much is asked for, where nothing is there."""
        worker = self._worker
        with worker._lock:
            while not self._ready and not self._is_whole:
                try:
                    if not worker._is_asked:
                        worker._say(wanted)
                    worker._is_asked = False
                    told = worker._byte()
                    if told == _CHUNK:
                        self._ready = worker._chunk(self.schema)
                        if wanted == _SOME:
                            # It is made while this one is looked at.
                            worker._say(wanted)
                            worker._is_asked = True
                        continue
                    if told == _LAST_CHUNK:
                        # Nothing is to be asked for any more, whatever becomes of it.
                        self._ended(TerraceError("the last rows were not taken when they were told", "ask again"))
                        self._ready = worker._chunk(self.schema)
                        self._failure = None
                        continue
                    self._ended(worker._error() if told != _ROWS else None)
                except (BrokenPipeError, EOFError):
                    self._ended(worker._died())
            if self._ready:
                return self._ready.pop(0)
            if self._failure is not None:
                raise self._failure
            return None

    def _ended(self, failure: TerraceError | None) -> None:
        """What follows the rows says whether they are all."""
        self._is_whole = True
        self._failure = failure
        self._worker._open = None

    def _finish(self) -> None:
        rest = []
        try:
            while (batch := self._next(_ALL)) is not None:
                rest.append(batch)
        except TerraceError:  # it is told to whoever reads the rows
            pass
        self._ready = rest

    def _rest(self) -> list[Any]:
        rest = []
        while (batch := self._next(_ALL)) is not None:
            rest.append(batch)
        return rest

    @property
    def state(self) -> QueryState | None:
        """How far the query is, from any thread; None where nothing is known of it any more."""
        return next((state for state in self._worker.states() if state.id == self.id), None)

    @property
    def progress(self) -> float | None:
        """The share of the cells that are to be read that was read, 0 to 1; None where that is not known."""
        state = self.state
        return None if state is None else state.progress

    def cancel(self) -> None:
        """Ends the query, from any thread, and returns when it has ended: whoever reads the rows gets an error. One that has ended stays as it is."""
        try:
            self._worker.cancel(self.id)
        except NotFoundError:
            pass

    def arrow(self) -> pyarrow.Table:
        """The rows not read yet."""
        return _pyarrow().Table.from_batches(self._rest(), self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = _pyarrow().RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def pandas(self) -> pandas.DataFrame:
        table = self.arrow()
        frame = table.to_pandas()
        for number, field in enumerate(table.schema):
            if _is_complex(field.type):
                frame.isetitem(number, _numpy(table.column(number)))
        return frame

    def numpy(self) -> dict[str, np.ndarray]:
        """One array for each column; columns of the same name are an InvalidError."""
        table = self.arrow()
        if len(set(table.column_names)) < table.num_columns:
            raise InvalidError(f"several columns have the same name: {table.column_names}", "name them with AS")
        return {name: _numpy(table.column(name)) for name in table.column_names}

    def xarray(self, dimensions: Sequence[str]) -> xarray.Dataset:
        """A dataset along these columns; cells without a row are NaN (not a time, None). Two rows of one cell are an InvalidError."""
        import xarray

        columns = self.numpy()
        if missing := [name for name in dimensions if name not in columns]:
            raise InvalidError(f"the answer has no column {', '.join(missing)}: it has {', '.join(columns)}")
        coordinates, places = {}, []
        for name in dimensions:
            coordinates[name], place = np.unique(columns[name], return_inverse=True)
            places.append(place.reshape(-1))
        shape = tuple(len(values) for values in coordinates.values())
        cell = np.ravel_multi_index(tuple(places), shape) if places else np.zeros(len(next(iter(columns.values()))), int)
        if len(np.unique(cell)) < len(cell):
            raise InvalidError(f"several rows have the same {', '.join(dimensions) or 'place'}", "group by the dimensions, or give more of them")
        variables = {}
        for name, values in columns.items():
            if name in coordinates:
                continue
            is_whole = len(cell) == int(np.prod(shape))
            kind = values.dtype if is_whole else np.promote_types(values.dtype, np.float64) if values.dtype.kind in "biuf" else values.dtype
            empty = np.nan if kind.kind in "fc" else np.array("NaT", kind) if kind.kind == "M" else None if kind.kind == "O" else 0
            # Of a vector, its components come last.
            full = np.full((int(np.prod(shape)), *values.shape[1:]), empty, kind)
            full[cell] = values
            along = (*dimensions, *[f"{name}_component"] * (values.ndim - 1))
            variables[name] = (along, full.reshape(shape + values.shape[1:]))
        return xarray.Dataset(variables, coords=coordinates)

    def __repr__(self) -> str:
        return f"<terrace.Result: {', '.join(f'{field.name} {field.type}' for field in self.schema)}>"


__all__ = ["QueryState", "Result", "Worker"]
