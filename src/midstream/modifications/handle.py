"""The handle of a modification: where it stands, waiting for it, taking it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from midstream.checkpoint.records import Cut, Phase, Record
from midstream.errors import JobError, MidstreamError, PlanError
from midstream.modifications import changes
from midstream.modifications.changes import Change
from midstream.modifications.phases import Event, advance
from midstream.modifications.terminal import watched
from midstream.placement.strategies.contract import Strategy
from midstream.placement.strategies.live import Live

if TYPE_CHECKING:
    from midstream.modifications.queue import Modifications

_AFTER_THE_CUT = (Phase.APPLIED, Phase.MOVING, Phase.COMPLETED)
_GLANCE = 0.2  # seconds between two looks at a modification that is watched


class ModificationError(MidstreamError):
    """A modification that was rejected, rolled back or abandoned; the job goes on under the plan it had."""


class Modification:
    """The handle of one atomic step from a running plan to another."""

    def __init__(self, record: Record, owner: Modifications, steps: Sequence[Change] = ()) -> None:
        self._record, self._owner, self._steps = record, owner, steps
        self._moved = threading.Condition()
        self._since = time.monotonic()
        self._let_go = ""  # why nobody works on it any more, although it has not come to an end
        self._is_cancelled = False

    @property
    def number(self) -> int:
        """Its number, from 1, over the life of the job."""
        return self._record.number

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self._record.phase

    @property
    def status(self) -> str:
        """Where it stands, in words."""
        shown = f"{self.phase.value}: {self._record.what}"
        return f"{shown} ({self.error})" if self.error else shown

    @property
    def rehearsed(self) -> int:
        """How many rows the dry run was tried on; `note` says why there were none, if so."""
        return self._record.rehearsed

    @property
    def note(self) -> str:
        """What is worth knowing besides: such as that there were no rows to try the new code on."""
        return self._record.note

    @property
    def cut(self) -> Cut | None:
        """The first epoch under the new plan, and the source offsets before it; `None` until it is applied."""
        return self._record.cut

    @property
    def version(self) -> int:
        """The plan version that it makes, 0 before there is one."""
        return self._record.version

    @property
    def durations(self) -> dict[str, float]:
        """Seconds that it took to reach each phase from the one before."""
        return dict(self._record.durations)

    @property
    def error(self) -> str:
        """Why it was rejected, rolled back or abandoned, with the traceback of the user's code where that failed."""
        return self._record.error

    @property
    def strategy(self) -> Strategy:
        """How groups move, if some do."""
        return next((step.wish.strategy for step in self._steps if step.wish is not None), Live())

    @property
    def drained(self) -> frozenset[str]:
        """The executors that are given back at the end."""
        return frozenset(step.wish.without for step in self._steps if step.wish is not None and step.wish.without)

    def wait(self, timeout: float | None = None) -> Modification:
        """Wait until it has come to an end; raises if that is not a good one, or if it takes longer than `timeout`.

        Not from a listener or a sink of the job: the epoch that calls it is the one that it would wait for.
        """
        if not self.phase.is_final:
            self._owner.engine.threads.refuse("wait()")
        with self._moved:
            if not self._moved.wait_for(lambda: self.phase.is_final or self._let_go, timeout):
                raise TimeoutError(f"modification {self.number} is still {self.status} after {timeout} seconds")
        if self.phase is Phase.COMPLETED:
            return self
        if not self.phase.is_final:
            raise JobError(f"modification {self.number} is {self.status}; {self._let_go}")
        raise ModificationError(f"modification {self.number} was not applied. {self.status}")

    def watch(self, timeout: float | None = None) -> Modification:
        """Wait as `wait` does, and show on the terminal where it stands and how far groups have moved."""
        self._owner.engine.threads.refuse("watch()")
        watched(lambda: (self.status, self._owner.moving()), lambda: self._ended(_GLANCE), timeout)
        return self.wait(0)

    def _ended(self, timeout: float) -> bool:
        with self._moved:
            return bool(self._moved.wait_for(lambda: self.phase.is_final or self._let_go, timeout))

    def reached(self, phase: Phase, timeout: float | None = None) -> bool:
        """Wait until it comes to a phase; False if it has come to another end, or has not come there in time."""

        def has_come() -> bool:
            return self.phase is phase or phase.value in self._record.durations

        if not has_come() and not self.phase.is_final and phase in _AFTER_THE_CUT:
            self._owner.engine.threads.refuse(f"reached({phase})")
        with self._moved:
            self._moved.wait_for(lambda: has_come() or self.phase.is_final or self._let_go, timeout)
        return has_come()

    def undo(self) -> Modification:
        """Take it back, as a modification of its own; state goes on from where it is."""
        if self.phase is not Phase.COMPLETED:
            raise PlanError(f"modification {self.number} is {self.phase.value}; only a completed one can be undone")
        before, after = (self._owner.plan(version) for version in (self._record.base, self._record.version))
        return self._owner.submit([changes.undone(before, after)], f"undo {self.number} ({self._record.what})")

    def cancel(self) -> Modification:
        """Take it back before it is applied: out of the queue, in its dry run, or where it waits for the next epoch.

        Raises if it was applied already: `undo` takes that back. Returns at once; a dry run that is under way may take
        a moment to end.
        """
        self._owner.cancel(self)
        return self

    def __str__(self) -> str:
        return f"{self.number}: {self._record.what}"

    def __repr__(self) -> str:
        return f"Modification({self.number}, {self.status})"

    def refuse_cancelled(self) -> None:
        """Raise if somebody has cancelled it meanwhile."""
        if self._is_cancelled:
            raise ModificationError(f"modification {self.number} was cancelled")

    def _move(self, event: Event) -> None:
        with self._moved:
            now = time.monotonic()
            self._record = advance(self._record, event, round(now - self._since, 6))
            self._since = now
            self._owner.keep(self._record)
            self._moved.notify_all()

    def _release(self, why: str) -> None:
        with self._moved:
            self._let_go = why
            self._moved.notify_all()
