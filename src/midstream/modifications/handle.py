"""The handle of a modification: where it stands, waiting for it, taking it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from midstream.checkpoint.records import Cut, Phase
from midstream.errors import JobError, PlanError
from midstream.modifications import changes
from midstream.modifications.changes import Change
from midstream.modifications.entry import Entry, ModificationError
from midstream.modifications.terminal import watched
from midstream.placement.status import MoveStatus
from midstream.plan.plan import Plan

_AFTER_THE_CUT = (Phase.APPLIED, Phase.MOVING, Phase.COMPLETED)
_GLANCE = 0.2  # seconds between two looks at a modification that is watched


class Queue(Protocol):
    """What a handle needs of the queue that its modification is in."""

    def refuse_here(self, what: str) -> None:
        """Refuse a call in a thread that it would wait for."""
        ...

    def submit(self, steps: Sequence[Change], what: str = "") -> Entry:
        """Take a modification into the queue."""
        ...

    def cancel(self, one: Entry) -> None:
        """Take a modification back that has not been applied."""
        ...

    def plan(self, version: int) -> Plan:
        """Return a plan version."""
        ...

    def moving(self) -> list[MoveStatus]:
        """Return how far groups have come that are on their way."""
        ...


class Modification:
    """The handle of one atomic step from a running plan to another."""

    def __init__(self, entry: Entry, queue: Queue) -> None:
        self._entry, self._queue = entry, queue

    @property
    def number(self) -> int:
        """Its number, from 1, over the life of the job."""
        return self._entry.record.number

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self._entry.record.phase

    @property
    def status(self) -> str:
        """Where it stands, in words."""
        shown = f"{self.phase.value}: {self._entry.record.what}"
        return f"{shown} ({self.error})" if self.error else shown

    @property
    def rehearsed(self) -> int:
        """How many rows the dry run was tried on; `note` says why there were none, if so."""
        return self._entry.record.rehearsed

    @property
    def note(self) -> str:
        """What is worth knowing besides: such as that there were no rows to try the new code on."""
        return self._entry.record.note

    @property
    def cut(self) -> Cut | None:
        """The first epoch under the new plan, and the source offsets before it; `None` until it is applied."""
        return self._entry.record.cut

    @property
    def version(self) -> int:
        """The plan version that it makes, 0 before there is one."""
        return self._entry.record.version

    @property
    def durations(self) -> dict[str, float]:
        """Seconds that it took to reach each phase from the one before."""
        return dict(self._entry.record.durations)

    @property
    def error(self) -> str:
        """Why it was rejected, rolled back or abandoned, with the traceback of the user's code where that failed."""
        return self._entry.record.error

    def wait(self, timeout: float | None = None) -> Modification:
        """Wait until it has come to an end; raises if that is not a good one, or if it takes longer than `timeout`.

        Not from a listener or a sink of the job: the epoch that calls it is the one that it would wait for.
        """
        if not self.phase.is_final:
            self._queue.refuse_here("wait()")
        if not self._entry.wait_for_end(timeout):
            raise TimeoutError(f"modification {self.number} is still {self.status} after {timeout} seconds")
        if self.phase is Phase.COMPLETED:
            return self
        if not self.phase.is_final:
            raise JobError(f"modification {self.number} is {self.status}; {self._entry.let_go}")
        raise ModificationError(f"modification {self.number} was not applied. {self.status}")

    def watch(self, timeout: float | None = None) -> Modification:
        """Wait as `wait` does, and show on the terminal where it stands and how far groups have moved."""
        self._queue.refuse_here("watch()")
        watched(lambda: (self.status, self._queue.moving()), lambda: self._entry.wait_for_end(_GLANCE), timeout)
        return self.wait(0)

    def reached(self, phase: Phase, timeout: float | None = None) -> bool:
        """Wait until it comes to a phase; False if it has come to another end, or has not come there in time."""

        def has_come() -> bool:
            return self.phase is phase or phase.value in self._entry.record.durations

        if not has_come() and not self.phase.is_final and phase in _AFTER_THE_CUT:
            self._queue.refuse_here(f"reached({phase})")
        self._entry.wait_for(lambda: has_come() or self.phase.is_final or self._entry.let_go, timeout)
        return has_come()

    def undo(self) -> Modification:
        """Take it back, as a modification of its own; state goes on from where it is."""
        if self.phase is not Phase.COMPLETED:
            raise PlanError(f"modification {self.number} is {self.phase.value}; only a completed one can be undone")
        before, after = (self._queue.plan(version) for version in (self._entry.record.base, self._entry.record.version))
        undone = self._queue.submit([changes.undone(before, after)], f"undo {self.number} ({self._entry.record.what})")
        return Modification(undone, self._queue)

    def cancel(self) -> Modification:
        """Take it back before it is applied: out of the queue, in its dry run, or where it waits for the next epoch.

        Raises if it was applied already: `undo` takes that back. Returns at once; a dry run that is under way may take
        a moment to end.
        """
        self._queue.cancel(self._entry)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Modification) and other._entry is self._entry

    def __hash__(self) -> int:
        return hash(id(self._entry))

    def __str__(self) -> str:
        return str(self._entry)

    def __repr__(self) -> str:
        return f"Modification({self.number}, {self.status})"
