"""A modification in the queue: its record, what it is to do, and who waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from midstream.checkpoint.records import Phase, Record
from midstream.errors import MidstreamError
from midstream.modifications.changes import Change
from midstream.modifications.phases import Event, advance
from midstream.placement.strategies.contract import Strategy
from midstream.placement.strategies.live import Live


class ModificationError(MidstreamError):
    """A modification that was rejected, rolled back or abandoned; the job goes on under the plan it had."""


class Entry:
    """One atomic step from a running plan to another, on its way.

    `keep` writes a record down, before anybody who waits hears of it.
    """

    def __init__(self, record: Record, keep: Callable[[Record], None], steps: Sequence[Change] = ()) -> None:
        self.record, self.steps = record, steps
        self.is_cancelled = False
        self.let_go = ""  # why nobody works on it any more, although it has not come to an end
        self._keep = keep
        self._moved = threading.Condition()
        self._since = time.monotonic()

    @property
    def number(self) -> int:
        """Its number, from 1, over the life of the job."""
        return self.record.number

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.record.phase

    @property
    def version(self) -> int:
        """The plan version that it makes, 0 before there is one."""
        return self.record.version

    @property
    def strategy(self) -> Strategy:
        """How groups move, if some do."""
        return next((step.wish.strategy for step in self.steps if step.wish is not None), Live())

    @property
    def drained(self) -> frozenset[str]:
        """The executors that are given back at the end."""
        return frozenset(step.wish.without for step in self.steps if step.wish is not None and step.wish.without)

    def move(self, event: Event) -> None:
        """Move on to the next phase."""
        with self._moved:
            now = time.monotonic()
            self.record = advance(self.record, event, round(now - self._since, 6))
            self._since = now
            self._keep(self.record)
            self._moved.notify_all()

    def wait_for(self, condition: Callable[[], object], timeout: float | None = None) -> bool:
        """Wait until something holds, which is looked at whenever this moves on; False if it takes too long."""
        with self._moved:
            return bool(self._moved.wait_for(condition, timeout))

    def wait_for_end(self, timeout: float | None = None) -> bool:
        """Wait until it has come to an end, or nobody works on it any more."""
        return self.wait_for(lambda: self.phase.is_final or self.let_go, timeout)

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._moved:
            self._moved.notify_all()

    def release(self, why: str) -> None:
        """Let those who wait know that nobody works on it any more."""
        with self._moved:
            self.let_go = why
            self._moved.notify_all()

    def refuse_cancelled(self) -> None:
        """Raise if somebody has cancelled it meanwhile."""
        if self.is_cancelled:
            raise ModificationError(f"modification {self.number} was cancelled")

    def __str__(self) -> str:
        return f"{self.number}: {self.record.what}"
