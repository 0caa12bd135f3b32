"""The way of a modification from its changes to a plan that can be armed: change, route, validate, try, journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from midstream.checkpoint.offsets import check_known
from midstream.epoch.context import JobContext
from midstream.epoch.deadline import Limit
from midstream.epoch.gate import Gate
from midstream.epoch.history import History
from midstream.epoch.plans import Plans
from midstream.epoch.query import Query
from midstream.modifications import changes
from midstream.modifications import phases as m
from midstream.modifications.changes import Change
from midstream.modifications.entry import Entry
from midstream.modifications.rehearsal import Rehearsal
from midstream.modifications.validation import validated
from midstream.placement.assignment import Assignment
from midstream.placement.reassignment import routed
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.compatibility import difference

if TYPE_CHECKING:
    from midstream.operators.resolved import Resolved


class Preparation:
    """Prepares one modification at a time, while the job goes on."""

    def __init__(
        self,
        context: JobContext,
        gate: Gate,
        plans: Plans,
        history: History,
        assignment: Assignment,
        query: Query,
        rehearsal: Rehearsal,
    ) -> None:
        self._context, self._gate, self._plans, self._history = context, gate, plans, history
        self._assignment, self._query, self._rehearsal = assignment, query, rehearsal
        self._validating: Limit | None = None

    def __call__(self, one: Entry) -> None:
        """Make the plan of a modification; raises why it cannot be."""
        running, journal = self._plans.running, self._context.journal
        resolved, moved = self._validated(running, one.steps, journal.next_version())
        new = resolved.plan
        if self._query.current is not None:  # a start brings its own sources
            check_known(self._query.feeds, new)
        self._query.check(new)
        one.move(m.Fits(running.plan.version, new.version))
        is_the_same = not difference(running.plan, new) and self._query.fits(new)
        tried = m.Tried() if is_the_same else self._rehearsal(resolved, self._query.feeds)
        self.open_sinks(new)
        one.refuse_cancelled()
        one.move(replace(tried, note="; ".join(filter(None, (tried.note, moved)))))
        journal.write_plan(new)
        self._plans.add(resolved)
        one.move(m.Kept())

    def give_up(self, why: str) -> None:
        """End what the user's new code is doing, if it is being tried."""
        if self._validating is not None:
            self._validating.give_up(why)
        self._rehearsal.give_up(why)

    def open_sinks(self, new: p.Plan) -> None:
        """Open the sinks that the running plan does not have."""
        running = {sink.id: sink.code for sink in self._plans.running.plan.of(p.Sink)}
        for sink in new.of(p.Sink):
            if running.get(sink.id) != sink.code:
                code.load(sink.code).open(self._context.spark, sink.id, self._context.job)

    def _validated(self, running: Resolved, steps: Sequence[Change], version: int) -> tuple[Resolved, str]:
        """Change the running plan and validate what comes of it; say, too, how many groups would move."""
        new = changes.versioned(changes.changed(running.plan, steps), version)
        wishes = [step.wish for step in steps if step.wish is not None]
        if wishes:
            self._look_around()
        new, moved = routed(self._assignment, running, new, wishes)
        self._validating = Limit(self._context.settings.cut_deadline, "the validation", lambda: None)
        with self._validating:  # it calls functions of the user, on no rows
            return validated(self._context.spark, running, new, self._history.states, moved), moved

    def _look_around(self) -> None:
        """Count executors that have joined."""
        assignment, running = self._assignment, self._plans.running.plan
        if not assignment.seating.is_current(assignment.most_slots(running)):
            assignment.seating.warm()
            with self._gate.between_epochs():
                assignment.look_around(running)
