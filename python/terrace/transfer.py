"""Transfers: puts and gets that a thread without Python's lock does while the program goes on."""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Iterable
from typing import Any

from . import _native
from .errors import BusyError

atexit.register(_native.finish_transfers)


class Transfer:
    """A started put or get of one region, in the manner of `concurrent.futures.Future`.

    Its buffer is kept alive until it is done, even if the Transfer itself is dropped; until then a put's values must not be
    changed, and a get's must not be read.
    """

    __slots__ = ("_native", "_result", "__weakref__")

    def __init__(self, native: _native.Transfer | None, result: Any) -> None:
        self._native = native
        self._result = result

    def done(self) -> bool:
        """True when it is done, well or not."""
        return self._native is None or self._native.done()

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """False: what was started is done."""
        return False

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> Any:
        """Waits, in seconds. A get's cells, as an ndarray of the selection's shape; None of a put.

        Raises what the transfer failed with, or BusyError (a TimeoutError) when it is not done in time.
        """
        if self._native is not None and not self._native.wait(timeout):
            raise BusyError(f"the transfer was not done within {timeout} s")
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits, in seconds. What the transfer failed with, or None. Raises BusyError when it is not done in time."""
        try:
            done = self._native is None or self._native.wait(timeout)
        except Exception as error:
            return error
        if not done:
            raise BusyError(f"the transfer was not done within {timeout} s")
        return None

    def future(self) -> concurrent.futures.Future:
        """A `concurrent.futures.Future` of it, for `concurrent.futures.wait` and `asyncio.wrap_future`."""
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def follow() -> None:
            try:
                future.set_result(self.result())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=follow, name="terrace-future", daemon=True).start()
        return future

    def add_done_callback(self, call: Callable[["Transfer"], object]) -> None:
        """Calls `call(self)` in another thread when it is done."""
        self.future().add_done_callback(lambda _: call(self))

    def __repr__(self) -> str:
        return f"<terrace.Transfer, {'done' if self.done() else 'under way'}>"


def wait(transfers: Iterable[Transfer], timeout: float | None = None) -> list[Any]:
    """The results of several transfers, each waited for so long. Raises the first failure, after all are done."""
    transfers = list(transfers)
    failures = [failure for failure in (transfer.exception(timeout) for transfer in transfers) if failure]
    if failures:
        raise failures[0]
    return [transfer.result() for transfer in transfers]
