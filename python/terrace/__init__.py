"""Terrace for Python: arrays, tags and files in fast storage tiers, shared by the processes of a workflow.

    import numpy, terrace

    session = terrace.connect()                          # the run that this program belongs to, or a root's path
    array = session.create_array("study/temperature", (0, 100), "f8", unlimited=[0], dimensions=["time", "x"])
    array[0] = numpy.arange(100)                         # every process sees it now
    array.tags["units"] = "K"
    row = array[0, ::-2]                                 # an ndarray
    transfer = array.start_put(1, row_of_100_cells)      # goes on while the program computes
    transfer.result()
    with array.lock(slice(0, 1)):                        # against overlapping locks of all processes
        array[0] += 1
    session.flush("study")                               # now a Zarr v3 array below the root

`terrace.filesystem` has the fsspec file system `terrace://`, `terrace.zarr` a store for zarr-python and xarray, `terrace.dask` makes Dask
arrays, and `python -m terrace.convert` imports and exports HDF5, NetCDF, FITS, NumPy and Zarr.
"""

from .array import Array, Lock
from .container import Bytes, Container, Session, Status, connect
from .errors import (
    BusyError,
    DamagedError,
    DeniedError,
    ExistsError,
    InvalidError,
    NoAgentError,
    NoSpaceError,
    NotFoundError,
    OutOfBoundsError,
    ProtocolError,
    SystemCallError,
    TerraceError,
    WrongKindError,
)
from .file import ObjectFile
from .query import QueryState, Result
from .stager import Stager, Steps
from .tags import Tags
from .transfer import Transfer, wait
from .values import Selected, Where

__all__ = [
    "Array",
    "BusyError",
    "Bytes",
    "Container",
    "DamagedError",
    "DeniedError",
    "ExistsError",
    "InvalidError",
    "Lock",
    "NoAgentError",
    "NoSpaceError",
    "NotFoundError",
    "ObjectFile",
    "OutOfBoundsError",
    "ProtocolError",
    "QueryState",
    "Result",
    "Selected",
    "Session",
    "Stager",
    "Status",
    "Steps",
    "SystemCallError",
    "Tags",
    "TerraceError",
    "Transfer",
    "Where",
    "WrongKindError",
    "connect",
    "wait",
]
