"""Questions to a run by HTTP, with xarray and Dask: cells in the manner of a notebook (# %%).

    export TERRACE_HTTP=http://127.0.0.1:8080 TERRACE_TOKEN_FILE=token
    python examples/http-notebook.py

It asks what wave-simulate.py has staged. Nothing was flushed for it, and nothing of Terrace is needed here.
"""

# %% The store: an address and a token.
import os
from pathlib import Path

import dask
import numpy as np
import xarray

url = os.environ["TERRACE_HTTP"].rstrip("/") + "/zarr"
token = Path(os.environ["TERRACE_TOKEN_FILE"]).read_text().strip()
options = {"headers": {"Authorization": f"Bearer {token}"}}

# %% A container is a dataset. Its arrays are Dask's, a task for each chunk; nothing is read yet.
wave = xarray.open_zarr(f"{url}/wave", decode_times=False, storage_options=options)
print(wave)

# %% A part by coordinates, and a mean along dimensions: only the chunks that are needed come.
shallow = wave.pressure.sel(z=slice(0, 200)).isel(time=-1)
profile = shallow.mean(["z", "y"]).compute()
print(f"mean pressure near the surface: {float(profile.min()):.3g} to {float(profile.max()):.3g} Pa")

# %% Several answers in one pass: Dask reads each chunk once.
energy, largest, when = dask.compute(
    (wave.pressure.astype("f8") ** 2).sum(["z", "y", "x"]),
    abs(wave.pressure).max(["z", "y", "x"]),
    abs(wave.pressure).max(["z", "y", "x"]).argmax(),
)
print(f"the greatest pressure, {float(largest.max()):.3g} Pa, is that of step {int(when)}")

# %% Two fields: the flow of energy, pressure times velocity, through the plane between the layers.
between = wave.isel(z=wave.sizes["z"] // 2, time=-1)
flow = (between.pressure * between.velocity_z).compute()
print(f"{float((flow > 0).mean()):.0%} of the plane lets energy down at the end")

# %% Few of many cells, with their coordinates.
last = wave.pressure.isel(time=-1).compute()
limit = float(np.quantile(abs(last), 0.99))
strong = last.where(abs(last) > limit).to_series().dropna()
print(f"{len(strong)} of {last.size} cells are above {limit:.3g} Pa, between {strong.index[0]} and {strong.index[-1]}")

# %% The answers agree with each other.
np.testing.assert_allclose(float((last.astype("f8") ** 2).sum()), float(energy[-1]), rtol=1e-9)
assert 0.005 < len(strong) / last.size < 0.015
