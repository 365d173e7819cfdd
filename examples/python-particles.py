"""Particles in the manner of VPIC, and an analysis in the manner of BD-CATS.

Writers, one process each, put eight properties of their particles into regions of shared arrays: an array of each property,
a region of each rank, transfers that overlap the next step's computation. When a step is complete, a tag of its container
says so; readers, each with another part of the particles than any writer had, wait for it and count energies.

    terrace run -- python examples/python-particles.py [particles of a writer]
"""

import multiprocessing
import sys
import time

import numpy as np

import terrace

WRITERS, READERS, STEPS = 2, 3, 2
PROPERTIES = {"x": "f4", "y": "f4", "z": "f4", "px": "f4", "py": "f4", "pz": "f4", "id1": "i4", "id2": "i4"}


def particles(rank: int, step: int, count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng((rank, step))
    made = {name: random.normal(size=count).astype("f4") for name in ("x", "y", "z", "px", "py", "pz")}
    made["id1"] = np.arange(rank * count, (rank + 1) * count, dtype="i4")
    made["id2"] = np.full(count, rank, "i4")
    return made


def write(rank: int, count: int, barrier) -> None:
    session = terrace.connect()
    started = []
    for step in range(STEPS):
        container = session[f"particles/step{step}"]
        made = particles(rank, step, count)
        # The last step's transfers went on while this step's particles were computed.
        terrace.wait(started)
        region = slice(rank * count, (rank + 1) * count)
        started = [container.open_array(name).start_put(region, cells) for name, cells in made.items()]
        terrace.wait(started)
        if barrier.wait(60) == 0:
            container.tags["complete"] = True


def read(reader: int, total: int, results) -> None:
    session = terrace.connect()
    for step in range(STEPS):
        container = session[f"particles/step{step}"]
        while not container.tags.get("complete"):
            time.sleep(0.01)
        region = slice(reader * total // READERS, (reader + 1) * total // READERS)
        momenta = terrace.wait(container.open_array(name, "r").start_get(region) for name in ("px", "py", "pz"))
        energy = sum(momentum.astype("f8") ** 2 for momentum in momenta)
        ids = container["id1"][region]
        results.put((step, reader, int((energy > 4).sum()), int(ids[0]), int(ids[-1])))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    total = WRITERS * count
    session = terrace.connect()
    for step in range(STEPS):
        container = session.create_container(f"particles/step{step}")
        for name, dtype in PROPERTIES.items():
            container.create_array(name, total, dtype, dimensions=["particle"], create="replace")
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(WRITERS), context.Queue()
    workers = [context.Process(target=write, args=(rank, count, barrier)) for rank in range(WRITERS)]
    workers += [context.Process(target=read, args=(reader, total, results)) for reader in range(READERS)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in range(READERS * STEPS)]
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)

    for step in range(STEPS):
        energetic = 0
        for rank in range(WRITERS):
            made = particles(rank, step, count)
            energetic += int((sum(made[name].astype("f8") ** 2 for name in ("px", "py", "pz")) > 4).sum())
        counted = [entry for entry in found if entry[0] == step]
        assert sum(entry[2] for entry in counted) == energetic
        assert sorted((entry[3], entry[4]) for entry in counted)[-1][1] == total - 1
        print(f"step {step}: {energetic} of {total} particles are energetic")


if __name__ == "__main__":
    main()
