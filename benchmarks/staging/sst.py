"""A writer and a reader of ADIOS2's SST engine: sst.py write|read NAME BLOCK STEPS. The writer prints its seconds."""

import sys
import time

import adios2
import numpy

role, name, block, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
adios = adios2.Adios()
io = adios.declare_io("staging")
io.set_engine("SST")
io.set_parameters({"RendezvousReaderCount": "1", "QueueLimit": "4", "QueueFullPolicy": "Block", "DataTransport": "WAN"})
if role == "write":
    cells = numpy.full(block, 7, numpy.uint8)
    with adios2.Stream(io, name, "w") as stream:
        begun = time.perf_counter()
        for _ in stream.steps(steps):
            stream.write("field", cells, [block], [0], [block])
    print(time.perf_counter() - begun)
else:
    got = 0
    with adios2.Stream(io, name, "r") as stream:
        for _ in stream.steps():
            got += len(stream.read("field"))
    assert got == block * steps, got
