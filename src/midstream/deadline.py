"""A limit in time for work that may hang: Spark jobs are cancelled, and Python code that goes on is interrupted."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator

from midstream.errors import MidstreamError

_GRACE_SECONDS = 5.0


class DeadlineError(MidstreamError):
    """Work took longer than it was allowed."""


@contextlib.contextmanager
def limited(seconds: float, what: str, cancel: Callable[[], None]) -> Iterator[threading.Event]:
    """Run a block for at most so long; `cancel` must end the Spark jobs that it waits for.

    Gives the event that is set when the time is over, so that the block does not try again.

    Promised: a block that waits for Spark, or loops in Python, ends with `DeadlineError`. Not promised: an end to a
    call into C that never returns.
    """
    thread = threading.get_ident()
    passed, done = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        passed.set()
        cancel()
        if not done.wait(_GRACE_SECONDS):  # it does not wait for Spark: break its Python
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(DeadlineError))

    threading.Thread(target=watch, name="midstream-deadline", daemon=True).start()
    try:
        yield passed
    except Exception as error:
        if passed.is_set():
            raise DeadlineError(f"{what} was given up after {seconds:g} seconds: it may hang") from error
        raise
    finally:
        done.set()
