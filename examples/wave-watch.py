"""Watches wave-simulate.py while it runs, by HTTP: xarray reads the steps that have arrived, matplotlib draws them.

    export TERRACE_HTTP=http://127.0.0.1:8080 TERRACE_TOKEN_FILE=token
    python examples/wave-watch.py [wave.png]

It knows an address and a token, and nothing else of Terrace: it runs wherever Python does.
"""

import os
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import xarray  # noqa: E402

URL = os.environ["TERRACE_HTTP"].rstrip("/") + "/zarr/wave"
TOKEN = Path(os.environ["TERRACE_TOKEN_FILE"]).read_text().strip()
OPTIONS = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "wave.png")
PATIENCE_S = 120


def opened() -> xarray.Dataset | None:
    """The run as it is now, or nothing: it has not begun."""
    try:
        return xarray.open_zarr(URL, chunks=None, decode_times=False, storage_options=OPTIONS)
    except FileNotFoundError:
        return None


def watched() -> tuple[xarray.Dataset, dict[int, float]]:
    """Waits for steps and looks at each; gives the whole run, and the largest pressure of each step."""
    peaks: dict[int, float] = {}
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        run = opened()
        steps = run.sizes["time"] if run is not None else 0
        for step in range(len(peaks), steps):
            plane = run.pressure.isel(time=step, y=run.sizes["y"] // 2)
            peaks[step] = float(abs(plane).max())
            print(f"step {step}: {float(run.time[step]) * 1e3:6.1f} ms, largest pressure {peaks[step]:.2e} Pa", flush=True)
            until = time.monotonic() + PATIENCE_S
        if steps and run.attrs["finished"] and steps == opened().sizes["time"]:
            return run, peaks
        time.sleep(0.1)
    sys.exit(f"no step has come for {PATIENCE_S} s")


def draw(run: xarray.Dataset, records: xarray.DataArray) -> None:
    middle = run.isel(y=run.sizes["y"] // 2)
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    for axis, part in zip(axes.flat[:3], (0.4, 0.65, 0.95)):
        step = int(part * (run.sizes["time"] - 1))
        plane = middle.pressure.isel(time=step)
        plane.plot.imshow(ax=axis, center=0, robust=True, yincrease=False, cmap="RdBu_r", cbar_kwargs={"label": "Pa"})
        axis.set_aspect("equal")
        axis.axhline(float(run.z[run.sizes["z"] // 2]), color="grey", linewidth=0.8)
        axis.set_title(f"pressure after {float(run.time[step]) * 1e3:.0f} ms")
    last = middle.isel(time=-1)
    speed = np.sqrt(last.velocity_x**2 + last.velocity_y**2 + last.velocity_z**2)
    speed.plot.imshow(ax=axes.flat[3], robust=True, yincrease=False, cmap="inferno", cbar_kwargs={"label": "m/s"})
    axes.flat[3].set_aspect("equal")
    axes.flat[3].set_title("speed of the medium, at the end")
    for x in records.x:
        axes.flat[4].plot(records.time * 1e3, records.sel(x=x), label=f"x = {float(x):.0f} m")
    axes.flat[4].set(title="pressure at receivers", xlabel="ms", ylabel="Pa")
    axes.flat[4].legend()
    energy = (run.pressure.astype("f8") ** 2).mean(["z", "y", "x"])
    axes.flat[5].semilogy(run.time * 1e3, energy)
    axes.flat[5].set(title="mean of squared pressure", xlabel="ms", ylabel="Pa²")
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    run, peaks = watched()
    cells = run.sizes["x"]
    # Two receivers beside the source, at its depth: the wave reaches the second one later, by the way between them.
    places = [cells // 2 + cells // 8, cells // 2 + cells // 4]
    records = run.pressure.isel(z=cells // 4, y=cells // 2, x=places).load()
    fine = np.linspace(float(run.time[0]), float(run.time[-1]), 2000)
    arrivals = [float(fine[np.argmax(np.interp(fine, run.time, records.isel(x=i)))]) for i in range(2)]
    way = float(run.x[places[1]] - run.x[places[0]])
    speed = way / (arrivals[1] - arrivals[0])
    draw(run, records)
    print(f"{len(peaks)} steps; between two receivers the wave went {speed:.0f} m/s; drawn into {PICTURE}")
    assert abs(speed / run.attrs["upper_speed"] - 1) < 0.15, "that is not the speed of sound in the upper layer"


if __name__ == "__main__":
    main()
