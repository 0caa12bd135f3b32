"""Modifications of a running job: a queue, worked off one by one while the job goes on.

Each is judged against the plan as it is when its turn comes, which is the plan as the one before it has left it. The
machine in `phases` says what may follow what; `preparation` and `arming` act on it.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from midstream.checkpoint import layout
from midstream.checkpoint.records import Phase, Record
from midstream.epoch.context import JobContext
from midstream.epoch.gate import Gate
from midstream.epoch.history import History
from midstream.epoch.plans import Intents, Plans
from midstream.epoch.query import Query
from midstream.errors import JobError, PlanError
from midstream.events import Modifying
from midstream.modifications import changes
from midstream.modifications import phases as m
from midstream.modifications.arming import Arming
from midstream.modifications.changes import Change
from midstream.modifications.entry import Entry
from midstream.modifications.preparation import Preparation
from midstream.modifications.recovery import Recovery
from midstream.modifications.rehearsal import Rehearsal
from midstream.placement.assignment import Assignment
from midstream.placement.status import MoveStatus
from midstream.plan.compatibility import difference, inheriting
from midstream.spark.exceptions import explained, has_lost_spark

if TYPE_CHECKING:
    from midstream.plan.plan import Plan

_PATIENCE = 5.0  # seconds that the end of a job waits for a dry run which it has given up
KEPT = 50  # modifications whose records and plans stay in the journal


class Modifications:
    """All modifications of a job that are kept, and the thread that works on them."""

    def __init__(
        self,
        context: JobContext,
        gate: Gate,
        plans: Plans,
        history: History,
        intents: Intents,
        assignment: Assignment,
        query: Query,
        rehearsal: Rehearsal,
    ) -> None:
        self._context, self._journal, self._gate = context, context.journal, gate
        self._plans, self._history, self._intents = plans, history, intents
        self._assignment, self._query = assignment, query
        self._prepare = Preparation(context, gate, plans, history, assignment, query, rehearsal)
        self._arm = Arming(context.spark, plans, query, assignment, self._unless_cancelled)
        self.known: list[Entry] = []
        self._queue: deque[Entry] = deque()
        self._wake = threading.Condition()
        self._closed = ""
        self._thread: threading.Thread | None = None

    def recover(self) -> None:
        """Take up the journal: finish what was applied, drop what was not armed, arm again what was."""
        self.known = [Entry(record, self._keep) for record in self._journal.modifications()]
        recovery = Recovery(self._context.spark, self._journal, self._plans, self._prepare, self._arm)
        recovery(self.known, self._query.feeds)

    def start_query(self) -> None:
        """Start the query of the job, and wait for what is armed before anything else is worked on."""
        is_armed = self._plans.armed is not None
        self._arm.start_query()
        if is_armed:
            with self._wake:
                self._start_thread()

    def submit(self, steps: Sequence[Change], what: str = "") -> Entry:
        """Take a modification into the queue."""
        with self._wake:
            if self._closed:
                raise JobError(f"the job cannot be modified: {self._closed}")
            one = self._new(steps, what)
            self._queue.append(one)
            self._start_thread()
            self._wake.notify_all()
        return one

    def _start_thread(self) -> None:
        if self._thread is None:
            earlier = [one for one in self.known if one not in self._queue]  # armed by a start, or before one
            self._thread = threading.Thread(target=self._work, args=[earlier], name="midstream-modify", daemon=True)
            self._thread.start()

    def cancel(self, one: Entry) -> None:
        """Take a modification back that has not been applied, wherever it stands."""
        self._gate.threads.refuse("cancel()")
        with self._wake:
            if self._closed:
                raise JobError(f"modification {one.number} cannot be cancelled: {self._closed}")
            if one in self._queue:
                self._queue.remove(one)
                one.move(m.Cancelled())
                return
            one.is_cancelled = True
        if one.phase in (Phase.SUBMITTED, Phase.VALIDATED, Phase.PREPARED):
            self._prepare.give_up("because it was cancelled")
        with self._gate.between_epochs():
            if one.phase is Phase.ARMED and self._plans.disarm(one.version) is not None:
                self._intents.adopt()
                one.move(m.Cancelled())
        if (one.phase.is_final and one.phase is not Phase.CANCELLED) or one.phase in (Phase.APPLIED, Phase.MOVING):
            raise PlanError(f"modification {one.number} is {one.phase.value}, so it cannot be cancelled; undo() it")

    def drift(self, script: Plan) -> int:
        """Arm the way to the flow of this start, before its first epoch; return the plan version that makes.

        Raises if it is refused. If its first epoch fails, the job goes on under the plan it had.
        """
        for one in self.known:
            if one.phase is Phase.ARMED:
                armed = self.plan(one.version)
                if not difference(armed, inheriting(armed, script)):  # killed at the cut, and started again
                    return one.version
                self._plans.disarm()
                one.move(m.Abandoned("the job was started with another flow since; submit it again"))
        one = self._new([changes.become(script)], f"start with the changed flow {script.name!r}")
        try:
            self._prepare(one)
        except Exception as error:
            one.move(m.Refused(str(explained(error))))
            raise
        self._arm.arm(one, is_of_a_start=True)
        return one.version

    def _new(self, steps: Sequence[Change], what: str) -> Entry:
        number = self.known[-1].number + 1 if self.known else 1
        one = Entry(Record(number=number, what=what or ", ".join(map(str, steps))), self._keep, steps)
        self._keep(one.record)
        self.known.append(one)
        return one

    def _keep(self, record: Record) -> None:
        """Write down where a modification stands."""
        listener = self._context.listener
        listener(Modifying(record.number, record.phase.value, written=False))
        self._journal.write_modification(record)
        listener(Modifying(record.number, record.phase.value, written=True))

    def refuse_here(self, what: str) -> None:
        """Refuse a call in a thread of the job that it would wait for."""
        self._gate.threads.refuse(what)

    def moving(self) -> list[MoveStatus]:
        """How far groups have come that are on their way."""
        return self._assignment.moving(self._history.last)

    def plan(self, version: int) -> Plan:
        """Return a plan version."""
        return self._plans.version(version).plan

    def close(self, why: str) -> None:
        """Release everything that has not ended: the job has. What is armed is applied after a restart."""
        with self._wake:
            self._closed = why
            self._wake.notify_all()
        for one in self.known:
            one.wake()
        self._prepare.give_up("because the job ends")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)  # code that hangs in a call which nobody can end is left behind
        for one in self.known:
            if not one.phase.is_final and one.phase not in (Phase.ARMED, Phase.APPLIED, Phase.MOVING):
                one.move(m.Abandoned(f"{why} before it was applied; submit it again"))
            one.release(f"{why}; it is applied when the job is started again")

    def _unless_cancelled(self, one: Entry, action: Callable[[], None]) -> None:
        with self._wake:  # nobody cancels it meanwhile
            if one.is_cancelled:
                one.move(m.Cancelled())
            else:
                action()

    # --- the thread ---

    def _work(self, earlier: Sequence[Entry]) -> None:
        spark = self._context.spark
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]  # of this thread
        self._gate.threads.add()
        for one in earlier:
            self._await_end_of(one)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                one = self._queue.popleft()
            self._handle(one)
            self._tidy()

    def _handle(self, one: Entry) -> None:
        try:
            self._prepare(one)
            self._arm(one)
        except Exception as error:  # whatever is wrong with new code is the modification's fault, never the job's
            is_lost = has_lost_spark(self._context.spark)
            is_over = is_lost or self._gate.stopping.is_set() or self._query.has_ended
            if one.is_cancelled and not one.phase.is_final:
                one.move(m.Cancelled())
            elif one.phase is Phase.ARMED and not is_over:  # else it is applied after a restart
                one.move(m.Broken(str(explained(error))))
            elif not one.phase.is_final and one.phase is not Phase.ARMED and not self._closed:
                gone = m.Abandoned("Spark ended before it was applied; submit it again")
                one.move(gone if is_lost else m.Refused(str(explained(error))))
            return
        self._await_end_of(one)

    def _await_end_of(self, one: Entry) -> None:
        """Wait until a modification has come to an end: the next is judged against what it leaves."""
        one.wait_for(lambda: one.phase.is_final or self._closed)
        running = self._plans.running.plan
        if not self._closed and not self._query.fits(running):  # it was rolled back
            try:
                self._query.exchange(running)
            except Exception as error:  # the query at hand feeds the running plan as well
                warnings.warn(f"the query stays as modification {one.number} left it: {error}", stacklevel=1)

    def _tidy(self) -> None:
        """Delete records and plans that are too old to be undone and that nothing else needs."""
        with self._wake:
            old = [one for one in self.known[:-KEPT] if one.phase.is_final]
            self.known = [one for one in self.known if one not in old]
        for one in old:
            self._journal.storage.delete(layout.modification_file(one.number))
        needed = {self._plans.running.plan.version}
        needed |= {version for one in self.known for version in (one.record.base, one.record.version)}
        if self._history.last is not None:
            needed.add(self._history.last.version)
        if self._plans.armed is not None:
            needed.add(self._plans.armed.version)
        for version in self._journal.versions():
            if version not in needed:
                self._journal.storage.delete(layout.plan_file(version))
        self._plans.keep(needed)
