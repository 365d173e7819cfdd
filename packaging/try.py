"""What a first user does in Python: an array, and its cells again."""

import numpy
import terrace

session = terrace.connect()
array = session.create_array("a", (4, 6), "f8")
array[:] = numpy.arange(24.0).reshape(4, 6)
assert session["a"][2, 3] == 15.0
