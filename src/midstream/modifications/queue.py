"""Modifications of a running job: a queue, worked off one by one while the job goes on.

Each is judged against the plan as it is when its turn comes, which is the plan as the one before it has left it. The
machine in `modification` says what may follow what; here its events are made, journalled and acted on.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import by_source, check_known
from midstream.checkpoint.records import Cut, Phase, Record
from midstream.epoch.armed import Armed
from midstream.epoch.deadline import Limit
from midstream.epoch.engine import Engine
from midstream.epoch.query import Query
from midstream.errors import JobError, MidstreamError, PlanError
from midstream.events import Modifying
from midstream.modifications import changes
from midstream.modifications import phases as m
from midstream.modifications.changes import Change
from midstream.modifications.entry import Entry
from midstream.modifications.rehearsal import Rehearsal
from midstream.modifications.validation import validated
from midstream.operators.resolve import resolve
from midstream.placement.reassignment import routed
from midstream.placement.status import MoveStatus
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.compatibility import difference, inheriting, with_sinks_of
from midstream.spark.exceptions import explained, has_lost_spark

if TYPE_CHECKING:
    from midstream.checkpoint.records import Commit
    from midstream.plan.plan import Plan

_log = logging.getLogger("midstream")
_PATIENCE = 5.0  # seconds that the end of a job waits for a dry run which it has given up
KEPT = 50  # modifications whose records and plans stay in the journal


class Modifications:
    """All modifications of a job that are kept, and the thread that works on them."""

    def __init__(self, engine: Engine, query: Query) -> None:
        self.engine, self.query, self.journal = engine, query, engine.journal
        self.known: list[Entry] = []
        self._queue: deque[Entry] = deque()
        self._wake = threading.Condition()
        self._closed = ""
        self._rehearse = Rehearsal(engine)
        self._validating: Limit | None = None
        self._thread: threading.Thread | None = None

    def recover(self) -> None:
        """Take up the journal: finish what was applied, drop what was not armed, arm again what was."""
        self.known = [Entry(record, self._keep) for record in self.journal.modifications()]
        unfinished = [one for one in self.known if not one.phase.is_final]
        cuts = self._cuts() if unfinished else {}
        for one in unfinished:
            while (event := m.recovered(one.record, cuts)) is not None:
                one.move(event)
            if one.phase is Phase.ARMED:
                self._arm_again(one)

    def _cuts(self) -> dict[int, Cut]:
        """Plan version -> the first epoch that was committed under it, of those whose records are kept."""
        cuts: dict[int, Cut] = {}
        before: Commit | None = None
        for epoch in self.journal.epochs():
            commit = self.journal.commit(epoch)
            offsets = before.offsets if before is not None and before.id == commit.parent else ()
            cuts.setdefault(commit.version, Cut(epoch, by_source(offsets, self.engine.feeds)))
            before = commit
        return cuts

    def start_query(self) -> None:
        """Start the query of the job: one that can feed the plan that is armed, where one is."""
        running, armed = self.engine.resolved.plan, self.engine.armed
        if armed is None:
            self.query.start(running)
            return
        added = {o.id for o in armed.resolved.plan.of(p.Source)} - {o.id for o in running.of(p.Source)}

        def arm(first: int) -> None:
            self.engine.armed = replace(armed, first=first if added else 0)

        try:
            self.query.start(armed.resolved.plan, running, arm)
        except Exception as error:  # the job goes on without it
            if has_lost_spark(self.engine.spark):
                raise
            self.engine.armed = None
            armed.broken(explained(error))
            self.query.start(running)
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
        self.engine.threads.refuse("cancel()")
        with self._wake:
            if self._closed:
                raise JobError(f"modification {one.number} cannot be cancelled: {self._closed}")
            if one in self._queue:
                self._queue.remove(one)
                one.move(m.Cancelled())
                return
            one.is_cancelled = True
        if one.phase in (Phase.SUBMITTED, Phase.VALIDATED, Phase.PREPARED):
            self._give_up("because it was cancelled")
        with self.engine.lock:  # between two epochs
            if one.phase is Phase.ARMED and self.engine.disarm(one.version):
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
                self.engine.armed = None
                one.move(m.Abandoned("the job was started with another flow since; submit it again"))
        one = self._new([changes.become(script)], f"start with the changed flow {script.name!r}")
        try:
            self._prepare(one)
        except Exception as error:
            one.move(m.Refused(str(explained(error))))
            raise
        self._arm(one, is_of_a_start=True)
        return one.version

    def _new(self, steps: Sequence[Change], what: str) -> Entry:
        number = self.known[-1].number + 1 if self.known else 1
        one = Entry(Record(number=number, what=what or ", ".join(map(str, steps))), self._keep, steps)
        self._keep(one.record)
        self.known.append(one)
        return one

    def _keep(self, record: Record) -> None:
        """Write down where a modification stands."""
        listener = self.engine.listener
        listener(Modifying(record.number, record.phase.value, written=False))
        self.journal.write_modification(record)
        listener(Modifying(record.number, record.phase.value, written=True))

    def refuse_here(self, what: str) -> None:
        """Refuse a call in a thread of the job that it would wait for."""
        self.engine.threads.refuse(what)

    def moving(self) -> list[MoveStatus]:
        """How far groups have come that are on their way."""
        return self.engine.assignment.moving(self.engine.last)

    def plan(self, version: int) -> Plan:
        """Return a plan version."""
        return self.engine.plan_of(version).plan

    def close(self, why: str) -> None:
        """Let go of everything that has not come to an end: the job has. What is armed is applied after a restart."""
        with self._wake:
            self._closed = why
            self._wake.notify_all()
        for one in self.known:
            one.wake()
        self._give_up("because the job ends")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)  # code that hangs in a call which nobody can end is left behind
        for one in self.known:
            if not one.phase.is_final and one.phase not in (Phase.ARMED, Phase.APPLIED, Phase.MOVING):
                one.move(m.Abandoned(f"{why} before it was applied; submit it again"))
            one.release(f"{why}; it is applied when the job is started again")

    def _give_up(self, why: str) -> None:
        """End what the user's new code is doing, if it is being tried."""
        if self._validating is not None:
            self._validating.give_up(why)
        self._rehearse.give_up(why)

    # --- the thread ---

    def _work(self, earlier: Sequence[Entry]) -> None:
        spark = self.engine.spark
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]  # of this thread
        self.engine.threads.add()
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
            self._feed(one)
        except Exception as error:  # whatever is wrong with new code is the modification's fault, never the job's
            is_lost = has_lost_spark(self.engine.spark)
            is_over = is_lost or self.engine.stopping.is_set() or self.query.has_ended
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
        if not self._closed and not self.query.fits(self.engine.resolved.plan):  # it was rolled back
            try:
                self.query.exchange(self.engine.resolved.plan)
            except Exception as error:  # the query at hand feeds the running plan as well
                warnings.warn(f"the query stays as modification {one.number} left it: {error}", stacklevel=1)

    def _prepare(self, one: Entry) -> None:
        engine = self.engine
        running = engine.resolved
        version = self.journal.next_version()
        new = changes.versioned(changes.changed(running.plan, one.steps), version)
        wishes = [step.wish for step in one.steps if step.wish is not None]
        if wishes:
            self._look_around()
        new, moved = routed(engine.assignment, running, new, wishes)
        self._validating = Limit(engine.settings.cut_deadline, "the validation", lambda: None)
        with self._validating:  # it calls functions of the user, on no rows
            resolved = validated(engine.spark, running, new, engine.states, moved)
        if self.query.current is not None:  # a start brings its own sources
            check_known(engine.feeds, new)
        self.query.check(new)
        one.move(m.Fits(running.plan.version, version))
        is_the_same = not difference(running.plan, new) and self.query.fits(new)
        tried = m.Tried() if is_the_same else self._rehearse(resolved)
        self._open_sinks(resolved.plan)
        one.refuse_cancelled()
        one.move(replace(tried, note="; ".join(filter(None, (tried.note, moved)))))
        self.journal.write_plan(resolved.plan)
        engine.add_plan(resolved)
        one.move(m.Kept())

    def _look_around(self) -> None:
        """Let executors that have come count."""
        assignment = self.engine.assignment
        if not assignment.seating.is_current(assignment.most_slots(self.engine.resolved.plan)):
            assignment.seating.warm()
            with self.engine.lock:  # between two epochs
                self.engine.look_around()

    def _release(self, executor: str) -> None:
        assignment = self.engine.assignment
        assignment.seating.release(executor, assignment.most_slots(self.engine.resolved.plan))

    def _feed(self, one: Entry) -> None:
        """Arm a modification, with a query that can feed its plan."""
        plan = self.plan(one.version)
        if self.query.fits(plan) and not (one.strategy.starts_afresh and self.engine.assignment.is_apart):
            self._arm(one)
        else:
            self.query.exchange(plan, lambda first: self._arm(one, first))

    def _open_sinks(self, new: Plan) -> None:
        """Open the sinks that the running plan does not have."""
        running = {sink.id: sink.code for sink in self.engine.resolved.plan.of(p.Sink)}
        for sink in new.of(p.Sink):
            if running.get(sink.id) != sink.code:
                code.load(sink.code).open(self.engine.spark, sink.id, self.engine.job)

    def _arm(self, one: Entry, first: int = 0, *, is_of_a_start: bool = False) -> None:
        """Let the next epoch, from `first` on, run under the new plan."""

        def done(note: str = "") -> None:
            for executor in one.drained:
                try:
                    self._release(executor)
                except Exception as error:  # it serves nothing, and the epoch is committed
                    _log.warning("executor %s is drained, and Spark does not take it back: %s", executor, error)
            one.move(m.Done(note))

        def committed(cut: Cut) -> None:
            self.query.settled()
            one.move(m.Committed(cut))
            if self.engine.assignment.begin(self.engine.resolved, one.strategy, done):
                one.move(m.Moves())
            else:
                done()

        def broken(error: BaseException) -> None:
            self.query.settled()
            one.move(m.Broken(str(error)))
            if is_of_a_start:  # nobody waits for it
                told = str(error).strip().splitlines()[0]
                _log.warning("modification %s was rolled back, and the job goes on: %s", one, told)

        armed = Armed(
            self.engine.plan_of(one.version),
            begun=lambda: one.move(m.Begun()),
            committed=committed,
            broken=broken,
            first=first,
        )
        with self._wake:  # nobody cancels it meanwhile
            if one.is_cancelled:
                one.move(m.Cancelled())
            else:
                self.engine.armed = armed

    def _arm_again(self, one: Entry) -> None:
        if one.record.base != self.engine.resolved.plan.version:
            one.move(m.Abandoned("the job was started with another plan since; submit it again"))
            return
        try:
            kept = with_sinks_of(self.journal.plan(one.version), self.engine.resolved.plan)
            self.engine.add_plan(resolve(self.engine.spark, kept))
            self._open_sinks(self.plan(one.version))
        except MidstreamError as error:
            one.move(m.Broken(f"its plan cannot be taken up again: {error}"))
            return
        self._arm(one)

    def _tidy(self) -> None:
        """Delete records and plans that are too old to be undone and that nothing else needs."""
        with self._wake:
            old = [one for one in self.known[:-KEPT] if one.phase.is_final]
            self.known = [one for one in self.known if one not in old]
        for one in old:
            self.journal.storage.delete(layout.modification_file(one.number))
        needed = {self.engine.resolved.plan.version}
        needed |= {version for one in self.known for version in (one.record.base, one.record.version)}
        if self.engine.last is not None:
            needed.add(self.engine.last.version)
        if self.engine.armed is not None:
            needed.add(self.engine.armed.version)
        for version in self.journal.versions():
            if version not in needed:
                self.journal.storage.delete(layout.plan_file(version))
        self.engine.keep_plans(needed)
