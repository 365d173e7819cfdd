"""Transfers, locks, several processes, forks and Ctrl-C."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import terrace

FORK = multiprocessing.get_context("fork")


def in_child(work, *arguments) -> int:
    """The exit code of a forked child that does it."""
    child = FORK.Process(target=work, args=arguments)
    child.start()
    child.join(60)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def ends(process: subprocess.Popen[str]) -> int:
    """The exit code."""
    process.communicate(timeout=120)
    return process.returncode


def python(program: str, run, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], env=run.environment, stdout=subprocess.PIPE, text=True
    )


def test_a_started_put_keeps_its_buffer_alive(place: terrace.Container) -> None:
    array = place.create_array("a", (64, 1 << 16), "u4")
    transfers = []
    for row in range(64):
        transfers.append(array.start_put(row, np.full(1 << 16, row, "u4")))
    gc.collect()
    assert terrace.wait(transfers) == [None] * 64
    assert all(transfer.done() and transfer.exception() is None for transfer in transfers)
    np.testing.assert_array_equal(array[:, 0], np.arange(64))
    np.testing.assert_array_equal(array[:, -1], np.arange(64))


def test_a_transfer_that_nobody_waits_for_is_done_all_the_same(place: terrace.Container) -> None:
    array = place.create_array("a", (32, 1 << 16), "u4")
    for row in range(32):
        array.start_put(row, np.full(1 << 16, row + 1, "u4"))
    array.start_get(0).result()
    np.testing.assert_array_equal(array[:, 7], np.arange(1, 33))


def test_what_was_started_is_done_when_the_interpreter_ends(place: terrace.Container, run) -> None:
    place.create_array("a", (32, 1 << 16), "u4")
    program = """if True:
        import sys, numpy, terrace
        array = terrace.connect().open_array(sys.argv[1])
        kept = [array.start_put(row, numpy.full(1 << 16, row + 1, "u4")) for row in range(32)]
    """
    assert ends(python(program, run, f"{place.name}/a")) == 0
    np.testing.assert_array_equal(place["a"][:, 7], np.arange(1, 33))


def test_a_transfer_is_like_a_future(place: terrace.Container) -> None:
    place["a"] = np.arange(12).reshape(3, 4)
    array = place["a"]
    transfer = array.start_get((slice(None, None, -1), 1))
    assert transfer.result(10).tolist() == [9, 5, 1] and transfer.result().tolist() == [9, 5, 1]
    assert not transfer.cancel() and not transfer.cancelled() and not transfer.running()
    futures = [array.start_get(row).future() for row in range(3)]
    done, rest = concurrent.futures.wait(futures, 10)
    assert not rest and [future.result()[0] for future in futures] == [0, 4, 8]

    async def cells() -> np.ndarray:
        return await asyncio.wrap_future(array.start_get(2).future())

    assert asyncio.run(cells()).tolist() == [8, 9, 10, 11]
    called = threading.Event()
    array.start_put(0, [9, 9, 9, 9]).add_done_callback(lambda transfer: called.set())
    assert called.wait(10) and array[0, 0] == 9
    assert array.start_get(slice(1, 1)).result().shape == (0, 4)


def test_a_transfer_that_fails_raises_from_its_result(place: terrace.Container) -> None:
    place.create_array("a", (3,), "i4")
    array = place.open_array("a", "r")
    transfer = array.start_put(0, 1)
    assert isinstance(transfer.exception(10), terrace.WrongKindError)
    with pytest.raises(terrace.WrongKindError):
        transfer.result()
    with pytest.raises(terrace.WrongKindError):
        terrace.wait([array.start_get(), array.start_put(0, 1)])


def test_overlapping_locks_exclude_each_other(place: terrace.Container) -> None:
    place.create_array("a", (10, 10), "i4")
    array = place["a"]
    with array.lock(slice(0, 5)) as lock:
        assert lock.is_held and lock.mode == "write"
        for index in (slice(4, 6), (0, 0), ...):
            with pytest.raises(terrace.BusyError, match="locked by process"):
                array.lock(index, "read", timeout=0)
        with array.lock(slice(5, 10), timeout=0):
            pass
    assert not lock.is_held
    first, second = array.lock(mode="read", timeout=0), array.lock((0, 0), mode="read", timeout=0)
    with pytest.raises(TimeoutError):
        array.lock((0, 0), timeout=0.05)
    first.release()
    first.release()
    second.release()
    array.lock(timeout=0).release()


def test_locked_cells_are_put_back_unless_the_block_fails(place: terrace.Container) -> None:
    array = place.create_array("a", (4, 4), "i4", unlimited=[0])
    with array.locked((slice(1, 3), slice(None, None, -2))) as cells:
        assert cells.shape == (2, 2)
        cells += [[1, 2], [3, 4]]
    assert array[1:3].tolist() == [[0, 2, 0, 1], [0, 4, 0, 3]]
    with pytest.raises(RuntimeError), array.locked(0) as cells:
        cells[:] = 9
        raise RuntimeError
    assert not array[0].any()
    array.lock(timeout=0).release()
    with array.locked(5) as cells:
        cells[:] = 5
    assert array.shape == (6, 4) and array[5].tolist() == [5] * 4
    with array.locked(0, "read") as cells:
        cells[:] = 9
    assert not array[0].any()


def test_the_lock_of_a_process_that_died_is_no_obstacle(place: terrace.Container) -> None:
    place.create_array("a", 4, "i4")

    def die() -> None:
        lock = place["a"].lock()
        assert lock.is_held
        os._exit(3)

    assert in_child(die) == 3
    with place["a"].lock(timeout=10):
        pass


def test_several_processes_count_without_losing_any(place: terrace.Container, run) -> None:
    place["a"] = np.zeros(4, "i8")
    program = """if True:
        import sys, terrace
        array = terrace.connect().open_array(sys.argv[1])
        for _ in range(100):
            with array.locked(slice(1, 3)) as cells:
                cells += 1
    """
    workers = [python(program, run, f"{place.name}/a") for _ in range(4)]
    assert [ends(worker) for worker in workers] == [0] * 4
    assert place["a"][:].tolist() == [0, 400, 400, 0]


def test_appends_of_several_processes_do_not_overlap(place: terrace.Container) -> None:
    array = place.create_array("a", (0, 2), "i4", unlimited=[0])

    def append(worker: int) -> None:
        for number in range(50):
            array.append([worker, number])

    workers = [FORK.Process(target=append, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    rows = array[:]
    assert len(rows) == 200
    for worker in range(4):
        assert rows[rows[:, 0] == worker, 1].tolist() == list(range(50))


def test_a_forked_child_goes_on_with_what_it_inherited(place: terrace.Container) -> None:
    array = place.create_array("a", (2, 1000), "i4")
    array[0] = 1
    array.start_put(0, np.full(1000, 2, "i4")).result()
    file = place.open("f", "wb")
    file.write(b"the parent's")

    def work() -> None:
        assert (array[0] == 2).all()
        array[1] = 3
        array.start_put(1, np.full(1000, 4, "i4")).result(20)
        with array.lock(timeout=10):
            pass
        place.tags_of("a")["child"] = os.getpid()
        with place.open("g", "wb") as other:
            other.write(b"the child's")

    assert in_child(work) == 0
    assert (array[1] == 4).all() and "child" in array.tags
    file.close()
    assert place["f"].read() == b"the parent's" and place["g"].read() == b"the child's"


def _sum(array: terrace.Array, row: int) -> int:
    return int(array[row].sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_takes_arrays_as_arguments(place: terrace.Container, method: str) -> None:
    place["a"] = np.arange(400).reshape(20, 20)
    with multiprocessing.get_context(method).Pool(2) as pool:
        sums = pool.starmap(_sum, [(place["a"], row) for row in range(20)])
    assert sums == np.arange(400).reshape(20, 20).sum(1).tolist()


def test_what_is_pickled_is_the_same_object_elsewhere(place: terrace.Container, session) -> None:
    place["a"] = np.arange(4)
    array, container = pickle.loads(pickle.dumps((place["a"], place)))
    array[0] = 9
    assert container["a"][0] == 9 and container == place
    assert pickle.loads(pickle.dumps(session)).root == session.root


INTERRUPTED = """if True:
    import signal, sys, terrace
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run in the background
    session = terrace.connect()
    print("waits", flush=True)
    try:
        {wait}
    except KeyboardInterrupt:
        session[sys.argv[1]][1] = 7
        print("was interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "wait", ["session[sys.argv[1]].lock()", "session.wait_for('never')"], ids=["lock", "wait_for"]
)
def test_ctrl_c_ends_a_wait_and_leaves_the_session_whole(place: terrace.Container, run, wait: str) -> None:
    place["a"] = np.zeros(2, "i4")
    with place["a"].lock():
        waiter = python(INTERRUPTED.format(wait=wait), run, f"{place.name}/a")
        assert waiter.stdout.readline() == "waits\n"
        time.sleep(0.3)
        waiter.send_signal(signal.SIGINT)
        said, _ = waiter.communicate(timeout=20)
    assert said == "was interrupted\n" and waiter.returncode == 0
    assert place["a"][1] == 7


def test_threads_put_and_get_side_by_side(place: terrace.Container) -> None:
    array = place.create_array("a", (8, 1 << 16), "u4")

    def work(row: int) -> bool:
        for number in range(10):
            array[row] = number
            if not (array[row] == number).all():
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
