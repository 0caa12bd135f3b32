"""The gate before each epoch: one at a time, and none while the job is being stopped or its query exchanged."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from midstream.epoch.own_threads import OwnThreads
from midstream.errors import MidstreamError


class StopRequestedError(MidstreamError):
    """Raised into a new epoch when the job is being stopped: the epoch has not begun, and is run after a restart."""


class Gate:
    """Says when an epoch may begin, and lets others act while none runs."""

    def __init__(self) -> None:
        self.stopping = threading.Event()  # no epoch begins any more
        self.threads = OwnThreads()
        self._closed = threading.Event()  # no epoch begins: the query is being exchanged
        self._lock = threading.Lock()  # held by the epoch under way

    @property
    def is_running(self) -> bool:
        """Whether an epoch is under way."""
        return self._lock.locked()

    @contextlib.contextmanager
    def epoch(self) -> Iterator[None]:
        """Hold the gate for an epoch; raises `StopRequestedError` if none may begin."""
        with self._lock, self.threads.entered():
            if self.stopping.is_set() or self._closed.is_set():
                raise StopRequestedError("the job is being stopped, or its query exchanged")
            yield

    @contextlib.contextmanager
    def between_epochs(self) -> Iterator[None]:
        """Wait for the end of the epoch under way, and keep the next from beginning."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Wait for the end of the epoch under way, and turn away every other one meanwhile."""
        self._closed.set()
        try:
            with self._lock:
                pass
            yield
        finally:
            self._closed.clear()
