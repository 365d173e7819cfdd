"""SQL on the arrays of a session: the answers as Arrow, pandas, NumPy or xarray.

Queries are answered by the program `terrace-query`, which is started when the first one is asked and maps the arrays where they
lie; rows come by a pipe, in Arrow's own form. pyarrow reads them.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidError, NotFoundError, SystemCallError, TerraceError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import xarray


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
    column = column.combine_chunks()
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


# The text is of SAVIME's language: the highest bit of its length.
SAVIME = 1 << 31


class Worker:
    """The program that answers a session's queries, one after the other. Started when it is needed, ended with the session."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._open: Result | None = None
        self._lock = threading.RLock()

    def _started(self) -> subprocess.Popen[bytes]:
        # After a fork the pipes are the parent's.
        if self._process is None or self._pid != os.getpid() or self._process.poll() is not None:
            command = [_program(), "worker"]
            if self._target:
                command += ["--connect", self._target]
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            except OSError as error:
                raise SystemCallError(f"{command[0]} can't be run: {error}") from error
            self._pid = os.getpid()
            self._open = None
        return self._process

    def ask(self, query: str, flags: int = 0) -> Result:
        pyarrow = _pyarrow()
        with self._lock:
            if self._open is not None and self._pid == os.getpid():
                self._open._finish()
            process = self._started()
            text = query.encode()
            try:
                process.stdin.write(struct.pack("<I", len(text) | flags) + text)
                process.stdin.flush()
                went_well = self._byte() == 0
            except (BrokenPipeError, EOFError):
                raise self._died() from None
            if not went_well:
                raise self._error()
            self._open = Result(self, pyarrow.ipc.open_stream(process.stdout))
            return self._open

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
        process, self._process = self._process, None
        said = process.stderr.read().decode(errors="replace").strip()
        process.wait()
        self._close(process)
        return TerraceError(f"the program that answers queries has ended ({process.returncode})", said or None)

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout, process.stderr):
            try:
                pipe.close()
            except OSError:
                pass

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._pid == os.getpid():
            self._close(process)
            process.wait()

    def __del__(self) -> None:
        try:
            self.end()
        except Exception:  # at the interpreter's end modules are gone
            pass


class Result:
    """Rows of a query. They come while they are read; asking the next query reads what is left of this one into memory.

    Speaks Arrow's C stream interface, so `polars.from_arrow(result)`, `duckdb`, `pyarrow.table(result)` and others take it as it is.
    """

    def __init__(self, worker: Worker, reader: Any) -> None:
        self._worker = worker
        self._reader = reader
        self._left: list[Any] | None = None
        self._failure: TerraceError | None = None
        self.schema: pyarrow.Schema = reader.schema

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows not read yet, as they come."""
        while (batch := self._next()) is not None:
            yield batch

    __iter__ = batches

    def _next(self) -> Any:
        with self._worker._lock:
            if self._left is not None:
                if self._left:
                    return self._left.pop(0)
                if self._failure is not None:
                    raise self._failure
                return None
            try:
                return self._reader.read_next_batch()
            except StopIteration:
                self._ended()
                if self._failure is not None:
                    raise self._failure from None
                return None
            except (OSError, _pyarrow().ArrowInvalid):
                self._left = []
                self._worker._open = None
                self._failure = self._worker._died()
                raise self._failure from None

    def _ended(self) -> None:
        """What follows the rows says whether they are all."""
        self._left = []
        self._worker._open = None
        try:
            if self._worker._byte() != 0:
                self._failure = self._worker._error()
        except EOFError:
            self._failure = self._worker._died()

    def _finish(self) -> None:
        rest = []
        try:
            while self._left is None and (batch := self._next()) is not None:
                rest.append(batch)
        except TerraceError as error:
            self._failure = error
        self._left = rest + (self._left or [])

    def arrow(self) -> pyarrow.Table:
        """The rows not read yet."""
        return _pyarrow().Table.from_batches(list(self.batches()), self.schema)

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


__all__ = ["Result", "Worker"]
