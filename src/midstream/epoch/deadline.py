"""A limit in time for work that may hang: Spark jobs are cancelled, and Python code that goes on is interrupted."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import TracebackType

from midstream.errors import MidstreamError

_GRACE_SECONDS = 5.0
_SHORT_GRACE_SECONDS = 0.5  # where somebody waits for the end


class DeadlineError(MidstreamError):
    """Work took longer than it was allowed, or is not wanted any more."""


class Limit:
    """Runs a block for at most so long; `cancel` must end the Spark jobs that it waits for.

    Promised: a block that waits for Spark, or loops in Python, ends with `DeadlineError` when its time is over, or when
    another thread gives it up. Not promised: an end to a call into C that never returns.
    """

    def __init__(self, seconds: float, what: str, cancel: Callable[[], None]) -> None:
        self.passed = threading.Event()  # it is over: the block need not try again
        self._seconds, self._what, self._cancel = seconds, what, cancel
        self._why = f"after {seconds:g} seconds: it may hang"
        self._grace = _GRACE_SECONDS
        self._over, self._done = threading.Event(), threading.Event()
        self._thread, self._ending = 0, threading.Lock()

    def give_up(self, why: str) -> None:
        """End the block now."""
        self._why, self._grace = why, _SHORT_GRACE_SECONDS
        self._over.set()

    def __enter__(self) -> Limit:
        self._thread = threading.get_ident()
        threading.Thread(target=self._watch, name="midstream-deadline", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._ending:
            self._done.set()
        self._over.set()
        if isinstance(error, Exception) and self.passed.is_set():
            raise DeadlineError(f"{self._what} was given up {self._why}") from error

    def _watch(self) -> None:
        self._over.wait(self._seconds)
        if self._done.is_set():
            return
        self.passed.set()
        self._cancel()
        if self._done.wait(self._grace):
            return
        with self._ending:  # a block that has just ended must not be hit behind its end
            if not self._done.is_set():  # it does not wait for Spark: break its Python
                broken = ctypes.py_object(DeadlineError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), broken)
