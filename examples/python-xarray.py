"""A model's output, analysed with xarray while it is written. Cells in the manner of a notebook (# %%).

    terrace run -- python examples/python-xarray.py
"""

# %% A session: the root of the run that this program belongs to.
import numpy as np
import xarray

import terrace
from terrace.zarr import TerraceStore

session = terrace.connect()
run = session.create_container("heat")

# %% Arrays with named dimensions. Time grows; the others are coordinates.
CELLS = 200
x = np.linspace(0, 1, CELLS)
run.create_array("x", CELLS, dimensions=["x"], create="replace")[:] = x
time = run.create_array("time", 0, unlimited=[0], dimensions=["time"], create="replace")
temperature = run.create_array(
    "temperature", (0, CELLS), "f4", unlimited=[0], dimensions=["time", "x"], chunks=(16, CELLS), create="replace"
)
temperature.tags["units"] = "K"
time.tags["long_name"] = "seconds since the beginning"
run.tags["title"] = "Heat in a rod whose ends are kept at 300 K"


# %% The model: each step is put while the next one is computed.
def step(rod: np.ndarray, number: float) -> np.ndarray:
    rod = rod.copy()
    rod[1:-1] += number * (rod[2:] - 2 * rod[1:-1] + rod[:-2])
    return rod


rod = 300 + 100 * np.exp(-(((x - 0.5) / 0.05) ** 2))
transfers = []
for number in range(100):
    transfers.append(temperature.start_put(number, rod.astype("f4")))
    for _ in range(50):
        rod = step(rod, 0.4)
terrace.wait(transfers)
time[:100] = np.arange(100) * 0.5

# %% The analysis: nothing was flushed, xarray reads what is staged.
dataset = xarray.open_zarr(TerraceStore(run), consolidated=False)
print(dataset)
warmest = dataset.temperature.max("x").compute()
assert dataset.temperature.attrs["units"] == "K"
assert (warmest.diff("time") <= 0).all(), "a rod that nobody heats gets no warmer"
print(f"warmest at the beginning {float(warmest[0]):.1f} K, at the end {float(warmest[-1]):.1f} K")

# %% A result back into Terrace, as an array that other processes see at once.
mean = dataset.temperature.mean("time").to_dataset(name="mean")
mean.to_zarr(TerraceStore(run, "statistics"), mode="w", zarr_format=3, consolidated=False,
             encoding={name: {"compressors": None} for name in mean.variables})  # fmt: skip
np.testing.assert_allclose(run["statistics/mean"][:], temperature[:100].mean(0), rtol=1e-5)

# %% Found by its tags, and made durable: plain Zarr v3 below the root.
assert session.find("title", prefix="Heat") == ["heat"]
run.flush()
print(f"durable in {session.root}/heat")
