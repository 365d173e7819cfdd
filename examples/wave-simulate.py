"""A simulation that is watched while it runs: an acoustic wave in three dimensions, by finite differences.

Pressure and the three components of velocity live on a staggered grid (Virieux's scheme, second order); below half depth sound is
faster, so part of the wave comes back. Each staged step is put while the next ones are computed. With MPI (mpi4py) the ranks share
the depth among them and put their own parts; a reader sees a step when all parts of all fields are there.

    terrace serve --http 127.0.0.1:8080 --token-file token &
    python examples/wave-simulate.py                      # or: mpirun -n 4 python examples/wave-simulate.py --mpi
    python examples/wave-watch.py                         # meanwhile, anywhere
"""

import argparse
import math

import numpy as np

import terrace

FREQUENCY = 12.0  # of the source, in Hz
SPACING = 10.0  # between cells, in m
DENSITY = 1000.0
UPPER, LOWER = 2000.0, 3000.0  # sound's speed in m/s
FIELDS = ("pressure", "velocity_z", "velocity_y", "velocity_x")


class Alone:
    """One process: nobody has the planes beyond our ends."""

    rank, size = 0, 1

    def from_below(self, plane: np.ndarray) -> np.ndarray:
        return np.zeros_like(plane)

    from_above = from_below

    def wait(self) -> None:
        pass


class Ranks:
    """Neighbours give each other the planes at their common ends."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm, self.null = MPI.COMM_WORLD, MPI.PROC_NULL
        self.rank, self.size = self.comm.rank, self.comm.size

    def _pass(self, plane: np.ndarray, to: int, of: int) -> np.ndarray:
        got = np.zeros_like(plane)
        inside = lambda rank: rank if 0 <= rank < self.size else self.null  # noqa: E731
        self.comm.Sendrecv(np.ascontiguousarray(plane), inside(to), recvbuf=got, source=inside(of))
        return got

    def from_below(self, plane: np.ndarray) -> np.ndarray:
        return self._pass(plane, self.rank - 1, self.rank + 1)

    def from_above(self, plane: np.ndarray) -> np.ndarray:
        return self._pass(plane, self.rank + 1, self.rank - 1)

    def wait(self) -> None:
        self.comm.Barrier()


def absorbing(cells: int) -> np.ndarray:
    """1 inside, less towards the ends: what arrives there does not come back."""
    width = max(4, cells // 8)
    distance = np.minimum(np.arange(cells), np.arange(cells)[::-1])
    return np.exp(-((0.25 * np.clip(1 - distance / width, 0, 1)) ** 2))


class Wave:
    def __init__(self, cells: int, first: int, last: int, neighbours) -> None:
        self.neighbours, self.first, self.last = neighbours, first, last
        self.speed = np.where(np.arange(cells) < cells // 2, UPPER, LOWER)[first:last, None, None]
        self.stiffness = (DENSITY * self.speed**2).astype("f4")
        self.step_s = 0.5 * SPACING / (LOWER * math.sqrt(3))
        ends = absorbing(cells)
        self.damping = (ends[first:last, None, None] * ends[:, None] * ends).astype("f4")
        self.fields = [np.zeros((last - first, cells, cells), "f4") for _ in FIELDS]
        self.source = (cells // 4, cells // 2, cells // 2)
        self.time = 0.0

    def step(self) -> None:
        p, vz, vy, vx = self.fields
        push = np.float32(self.step_s / (DENSITY * SPACING))
        vz[:-1] -= push * (p[1:] - p[:-1])
        vz[-1] -= push * (self.neighbours.from_below(p[0]) - p[-1])
        vy[:, :-1] -= push * (p[:, 1:] - p[:, :-1])
        vx[:, :, :-1] -= push * (p[:, :, 1:] - p[:, :, :-1])
        spread = np.empty_like(p)
        spread[1:] = vz[1:] - vz[:-1]
        spread[0] = vz[0] - self.neighbours.from_above(vz[-1])
        spread[:, 0] += vy[:, 0]
        spread[:, 1:] += vy[:, 1:] - vy[:, :-1]
        spread[:, :, 0] += vx[:, :, 0]
        spread[:, :, 1:] += vx[:, :, 1:] - vx[:, :, :-1]
        p -= np.float32(self.step_s / SPACING) * self.stiffness * spread
        z, y, x = self.source
        if self.first <= z < self.last:
            p[z - self.first, y, x] += np.float32(self.ricker() * self.step_s * 1e4)
        for field in self.fields:
            field *= self.damping
        self.time += self.step_s

    def ricker(self) -> float:
        """The source: a pulse whose middle comes after 1.5 periods."""
        argument = (math.pi * FREQUENCY * (self.time - 1.5 / FREQUENCY)) ** 2
        return (1 - 2 * argument) * math.exp(-argument)


def staged(session: terrace.Session, cells: int, neighbours) -> terrace.Container:
    """The arrays, made by the first rank."""
    if neighbours.rank == 0:
        run = session.create_container("wave")
        dimensions = ["time", "z", "y", "x"]
        coordinates = np.arange(cells) * SPACING
        for name in dimensions[1:]:
            run.create_array(name, cells, dimensions=[name], create="replace")[:] = coordinates
            run[name].tags["units"] = "m"
        run.create_array("time", 0, unlimited=[0], dimensions=["time"], create="replace").tags["units"] = "s"
        for name in FIELDS:
            field = run.create_array(
                name, (0, cells, cells, cells), "f4", unlimited=[0], dimensions=dimensions, chunks=(1, cells, cells, cells),
                create="replace",
            )  # fmt: skip
            field.tags["units"] = "Pa" if name == "pressure" else "m/s"
        run.tags.update(title="An acoustic wave in two layers", upper_speed=UPPER, frequency=FREQUENCY, finished=False)
    neighbours.wait()
    return session["wave"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cells", type=int, default=64, help="along each of z, y and x")
    options.add_argument("--steps", type=int, default=40, help="that are staged")
    options.add_argument("--every", type=int, default=6, help="computed steps from one that is staged to the next")
    options.add_argument("--mpi", action="store_true", help="share the work with the other ranks (mpi4py)")
    asked = options.parse_args()
    neighbours = Ranks() if asked.mpi else Alone()
    bounds = [asked.cells * rank // neighbours.size for rank in range(neighbours.size + 1)]
    first, last = bounds[neighbours.rank], bounds[neighbours.rank + 1]

    run = staged(terrace.connect(), asked.cells, neighbours)
    arrays = [run[name] for name in FIELDS]
    wave = Wave(asked.cells, first, last, neighbours)
    under_way: list = []
    for number in range(asked.steps):
        for _ in range(asked.every):
            wave.step()
        # At most one step is on its way; the fields go on, so a copy is put.
        terrace.wait(under_way)
        under_way = [
            array.start_put((number, slice(first, last)), field.copy()) for array, field in zip(arrays, wave.fields)
        ]
        if neighbours.rank == 0:
            run["time"][number] = wave.time
    terrace.wait(under_way)
    neighbours.wait()
    if neighbours.rank == 0:
        run.tags["finished"] = True
        print(f"{asked.steps} steps of {asked.cells}³ cells, {wave.time:.3f} s of the wave, by {neighbours.size} processes")


if __name__ == "__main__":
    main()
