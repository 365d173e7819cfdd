"""Staging and steps."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import terrace


def test_steps_are_read_as_they_become_whole(place: terrace.Container) -> None:
    p = place.create_array("p", (0, 5, 6), unlimited=[0], dimensions=["time", "y", "x"])
    v = place.create_array("v", (0, 5, 6), unlimited=[0], dimensions=["time", "y", "x"])
    place["x"] = np.arange(6)
    seen: list[int] = []

    def read() -> None:
        for step in place.steps(arrays=["p", "v"]):
            assert (p[step] == step).all() and (v[step] == -step).all()
            seen.append(step)
            if step == 49:
                break

    reader = threading.Thread(target=read)
    reader.start()
    values = np.empty((5, 6))
    with place.session.stager(queue_bytes=1 << 20) as stager:
        for step in range(50):
            values[:] = step
            assert stager.put(p, step, values)
            values[:] = -step
            assert stager.put(v, step, values)
        stager.sync("durable")
        assert stager.counters["done_puts"] == 100 and stager.counters["queued_bytes"] == 0
    reader.join()
    assert seen == list(range(50))
    late = place.steps(from_step=48, timeout=0)
    assert list(late) == [48, 49] and late.position == 50


def test_a_step_in_part_is_none(place: terrace.Container) -> None:
    p = place.create_array("p", (0, 4), unlimited=[0])
    p[0, :2] = 1
    steps = place.steps()
    assert steps.wait(0) is None
    p[0, 2:] = 2
    assert steps.wait(5) == 0
    place.session.stager().publish(place, 3)
    assert steps.wait(5) == 1 and steps.wait(5) == 2 and steps.wait(0) is None


def test_sync_raises_what_failed_and_puts_all_else(place: terrace.Container) -> None:
    a = place.create_array("a", 10, "u1")
    stager = place.session.stager()
    stager.put(a, slice(0, 3), [1, 2, 3], copy=False)
    place.remove("a")
    b = place.create_array("b", 10, "u1")
    stager.put(a, slice(0, 3), [1, 2, 3])
    stager.put(b, slice(0, 3), [4, 5, 6])
    with pytest.raises(terrace.NotFoundError):
        stager.sync()
    stager.sync()
    assert b[:3].tolist() == [4, 5, 6]
    with pytest.raises(terrace.InvalidError, match="forward"):
        stager.sync("analysis")
    with pytest.raises(ValueError):
        stager.sync("somewhere")
