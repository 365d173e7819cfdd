"""Halo exchange: several processes share one field, and read their neighbours' edges under locks.

Each process owns some rows of a field of heat. In each step it takes, under a read lock, its rows and one row of each
neighbour, computes, and puts its own rows under a write lock. A barrier between steps keeps all at the same step.

    terrace run -- python examples/python-halo.py [processes]
"""

import multiprocessing
import sys

import numpy as np

import terrace

ROWS, COLUMNS, STEPS = 96, 64, 30


def beginning() -> np.ndarray:
    field = np.zeros((ROWS, COLUMNS))
    field[ROWS // 3 : ROWS // 2, COLUMNS // 4 : COLUMNS // 2] = 100
    return field


def stepped(field: np.ndarray) -> np.ndarray:
    """The inner cells after a step; the outermost cells stay as they are."""
    after = field.copy()
    after[1:-1, 1:-1] += 0.2 * (
        field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2] - 4 * field[1:-1, 1:-1]
    )
    return after


def work(rank: int, processes: int, barrier) -> None:
    # Each process has its own session, or the one that it inherited by a fork: both are right.
    field = terrace.connect().open_array("halo/field")
    first, last = rank * ROWS // processes, (rank + 1) * ROWS // processes
    above, below = max(0, first - 1), min(ROWS, last + 1)
    for _ in range(STEPS):
        with field.lock(slice(above, below), "read"):
            cells = field[above:below]
        after = stepped(cells)[first - above : last - above]
        # All have read this step's cells before anybody puts the next one's.
        barrier.wait(60)
        with field.lock(slice(first, last), "write"):
            field[first:last] = after
        barrier.wait(60)


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    session = terrace.connect()
    field = session.create_array("halo/field", (ROWS, COLUMNS), create="replace", dimensions=["y", "x"])
    field[:] = beginning()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes)
    workers = [context.Process(target=work, args=(rank, processes, barrier)) for rank in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)

    expected = beginning()
    for _ in range(STEPS):
        expected = stepped(expected)
    np.testing.assert_array_equal(field[:], expected)
    print(f"{processes} processes, {STEPS} steps: the same as one process computes")


if __name__ == "__main__":
    main()
