"""Staging: puts that a program starts and does not wait for, and the steps of a container as they become whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from .array import Array, exported
from .errors import BusyError

if TYPE_CHECKING:
    from .container import Container

Arrived = Literal["staged", "analysis", "durable"]


class Stager:
    """A queue of puts, bounded in bytes, and the threads that do them. See `Session.stager`.

    Puts into arrays of one container take effect in their order. At the end of a `with` block what is queued is put, and what
    failed is raised.
    """

    def __init__(self, native: _native.Stager) -> None:
        self._native = native

    def put(self, array: Array, index: Any, values: Any, *, copy: bool = True) -> bool:
        """Queues a put of values, broadcast to the selection. False: the queue was full and nothing will be put
        (`full="drop"`); with `full="block"` it waits for room.

        copy: False for values that are left alone until the next `sync`; else they may be changed at once.
        """
        selection, packed = array._values(index, values)
        if not packed.size:
            return True
        return self._native.put(array._native, selection.offset, selection.count, selection.stride, exported(packed), copy)

    def begin_step(self, nbytes: int) -> bool:
        """Takes room for a whole step: the puts that follow have it. False: there is none, and they are not to be made."""
        return self._native.begin_step(nbytes)

    def publish(self, container: Container | str, steps: int) -> None:
        """Says, after all earlier puts of the container, that its first `steps` steps are whole: for readers that can't tell by
        its cells.
        """
        self._native.publish(container if isinstance(container, str) else container.name, steps)

    def sync(self, arrived: Arrived = "staged", timeout: float | None = None) -> None:
        """Waits, in seconds, until all earlier puts have arrived: at the agent ("staged"), at all agents that they are forwarded
        to ("analysis"), in the root's own storage ("durable"). Raises the first failure of the puts since the last call, after all
        others were put, or BusyError when they have not arrived in time.
        """
        if not self._native.sync(arrived, timeout):
            raise BusyError(f"not all puts have arrived ({arrived}) within {timeout} s")

    @property
    def counters(self) -> dict[str, int | float]:
        """What is queued now; what was put, dropped and failed since the beginning; for how long the program was held up."""
        return self._native.counters()

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.sync()


class Steps(Iterator[int]):
    """The numbers of a container's steps, in order, each when it is whole. See `Container.steps`."""

    def __init__(self, native: _native.Steps, timeout: float | None) -> None:
        self._native = native
        self._timeout = timeout

    @property
    def position(self) -> int:
        """The step that comes next."""
        return self._native.position

    def wait(self, timeout: float | None = None) -> int | None:
        """The next step; None when it is not whole within so many seconds."""
        return self._native.next(timeout)

    def __next__(self) -> int:
        step = self._native.next(self._timeout)
        if step is None:
            raise StopIteration
        return step
