"""The threads of a job that may call the user's code: what waits for the job cannot be called in one of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from midstream.errors import JobError


class OwnThreads:
    """Knows which threads work for a job: that of an epoch, of modifications, and the one that waits for the end."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def add(self) -> None:
        """Count this thread among them."""
        self._known.add(threading.get_ident())

    def clear(self) -> None:
        """Forget them: the job has ended, and the system gives their numbers to other threads."""
        self._known.clear()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Count this thread among them for a while."""
        is_new = threading.get_ident() not in self._known
        self.add()
        try:
            yield
        finally:
            if is_new:
                self._known.discard(threading.get_ident())

    @property
    def has_this(self) -> bool:
        """Whether this is one of them, so that the caller is a listener, a sink or a function of the job."""
        return threading.get_ident() in self._known

    def refuse(self, what: str) -> None:
        """Refuse a call that waits for the job in a thread that the job waits for."""
        if self.has_this:
            raise JobError(
                f"{what} was called in a thread of the job, by a listener or a sink: the job would wait for itself, "
                "for ever. Call it from another thread"
            )
