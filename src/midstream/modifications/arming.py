"""Arming a prepared modification for the next epoch, with a query that can feed its plan, and what follows the cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from midstream.checkpoint.records import Cut
from midstream.epoch.plans import Armed, Plans
from midstream.epoch.query import Query
from midstream.modifications import phases as m
from midstream.modifications.entry import Entry
from midstream.placement.assignment import Assignment
from midstream.plan import plan as p
from midstream.spark.exceptions import explained, has_lost_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("midstream")


@dataclass(frozen=True, slots=True)
class Arming:
    """Lets the next epoch run under the plan of a modification.

    `unless_cancelled` runs an action unless somebody has cancelled the modification; nobody can meanwhile.
    """

    spark: SparkSession
    plans: Plans
    query: Query
    assignment: Assignment
    unless_cancelled: Callable[[Entry, Callable[[], None]], None]

    def __call__(self, one: Entry) -> None:
        """Arm a modification; exchange the query first if the one at hand cannot feed its plan."""
        plan = self.plans.version(one.version).plan
        if self.query.fits(plan) and not (one.strategy.starts_afresh and self.assignment.is_apart):
            self.arm(one)
        else:
            self.query.exchange(plan, lambda first: self.arm(one, first))

    def arm(self, one: Entry, first: int = 0, *, is_of_a_start: bool = False) -> None:
        """Let the next epoch, from `first` on, run under the new plan."""

        def broken(error: BaseException) -> None:
            self.query.settled()
            one.move(m.Broken(str(error)))
            if is_of_a_start:  # nobody waits for it
                told = str(error).strip().splitlines()[0]
                _log.warning("modification %s was rolled back, and the job goes on: %s", one, told)

        armed = Armed(
            self.plans.version(one.version),
            begun=lambda: one.move(m.Begun()),
            committed=lambda cut: self._committed(one, cut),
            broken=broken,
            first=first,
        )
        self.unless_cancelled(one, lambda: self.plans.arm(armed))

    def start_query(self) -> None:
        """Start the query of the job: one that can feed the plan that is armed, where one is."""
        running, armed = self.plans.running.plan, self.plans.armed
        if armed is None:
            self.query.start(running)
            return
        added = {o.id for o in armed.resolved.plan.of(p.Source)} - {o.id for o in running.of(p.Source)}

        def arm(first: int) -> None:
            self.plans.arm(replace(armed, first=first if added else 0))

        try:
            self.query.start(armed.resolved.plan, running, arm)
        except Exception as error:  # the job goes on without it
            if has_lost_spark(self.spark):
                raise
            self.plans.disarm()
            armed.broken(explained(error))
            self.query.start(running)

    def _committed(self, one: Entry, cut: Cut) -> None:
        """Note the cut, and let groups move that the new plan wants elsewhere."""
        self.query.settled()
        one.move(m.Committed(cut))
        if self.assignment.begin(self.plans.running, one.strategy, lambda note: self._done(one, note)):
            one.move(m.Moves())
        else:
            self._done(one)

    def _done(self, one: Entry, note: str = "") -> None:
        """Return drained executors to Spark: nothing is left to do."""
        for executor in one.drained:
            try:
                self.assignment.release(executor, self.plans.running.plan)
            except Exception as error:  # it serves nothing, and the epoch is committed
                _log.warning("executor %s is drained, and Spark does not take it back: %s", executor, error)
        one.move(m.Done(note))
