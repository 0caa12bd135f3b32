"""The budget of a task for copying state in an epoch: bytes and seconds, whichever comes to an end first.

Bytes bound what a fast store can fill a disk with, seconds what a slow one adds to the latency of the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """Counts what bringing groups has cost; it is the caller who stops.

    >>> budget = Budget(bytes=100, seconds=60)
    >>> with budget.bringing():
    ...     budget.copied += 70
    >>> budget.is_spent
    False
    >>> with budget.bringing():
    ...     budget.copied += 70
    >>> budget.is_spent
    True
    """

    bytes: int
    seconds: float
    copied: int = 0
    _took: float = 0.0
    _last: float = 0.0  # what the last group took

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be copied in this epoch: another group like the last one would take too long."""
        return self.copied >= self.bytes or self._took + self._last >= self.seconds

    def give_up(self) -> None:
        """Copy nothing more."""
        self.bytes = 0

    @contextmanager
    def bringing(self) -> Iterator[None]:
        """Count the time that a group takes: reading its snapshot, and the change logs after it."""
        started = time.perf_counter()
        yield
        self._last = time.perf_counter() - started
        self._took += self._last
