"""Runs of an epoch's Spark jobs under a plan, again where a run fails for no reason of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from midstream import events
from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.offsets import tags
from midstream.checkpoint.records import Intent
from midstream.epoch.attempt import Attempt, Outcome
from midstream.epoch.batch import Batch
from midstream.epoch.briefing import Briefing
from midstream.epoch.context import JobContext
from midstream.epoch.history import History
from midstream.epoch.observed import Observed
from midstream.epoch.plans import Plans
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.resolved import Resolved
from midstream.placement.assignment import Assignment
from midstream.plan import plan as p
from midstream.plan.compatibility import on_trial
from midstream.sinks.contract import Sink
from midstream.sources.union import execution_of
from midstream.spark.exceptions import explained, is_final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 3  # runs of an epoch before its failure is the job's


class Runner:
    """Runs epochs that were decided on; what they leave counts only once it is committed."""

    def __init__(
        self,
        context: JobContext,
        plans: Plans,
        history: History,
        assignment: Assignment,
        housekeeping: Housekeeping,
        observed: Observed,
    ) -> None:
        self._context, self._plans, self._history = context, plans, history
        self._assignment, self._housekeeping, self._observed = assignment, housekeeping, observed

    def run(
        self,
        batch: Batch,
        intent: Intent,
        witness: Sink | None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run an epoch until a run succeeds; `is_late` says whether there is no time for another one."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(batch, intent, witness)()
            except Exception as error:
                master = self._context.spark.sparkContext.master or ""
                if attempt == ATTEMPTS or is_late() or is_final(error, master):
                    raise
                self._context.listener(events.Rerun(intent.epoch, attempt, str(explained(error))))
        raise AssertionError("unreachable")

    def _attempt(self, batch: Batch, intent: Intent, witness: Sink | None) -> Attempt:
        context, resolved = self._context, self._plans.version(intent.version)
        apply_settings(context, self._assignment, batch.rows.sparkSession, resolved.plan)
        keyed = {o.id: self._keyed_run(resolved, o.id, batch, intent) for o in resolved.plan.of(p.KeyedOperator)}
        return Attempt(
            resolved, batch.rows, intent.epoch, context.job, context.journal.storage, tags(batch.feeds), keyed,
            context.listener, witness, intent.clock,
            lambda: None if batch.final else execution_of(context.spark, context.query_name),
            on_trial(self._plans.running.plan, resolved.plan),
        )  # fmt: skip

    def _keyed_run(self, resolved: Resolved, id: str, batch: Batch, intent: Intent) -> KeyedRun:
        context, history = self._context, self._history
        beginning = history.beginning(intent, resolved, final=batch.final)
        briefing = Briefing(beginning, context.job, context.journal.storage.root, context.settings, history.recent)
        serving = self._assignment.serving(resolved, id)
        due = self._housekeeping.snapshots_due(id, beginning.state(id), intent.epoch)
        return briefing.keyed_run(id, serving, frozenset(due), self._observed.density(id))


def apply_settings(context: JobContext, assignment: Assignment, session: SparkSession, plan: p.Plan) -> None:
    """Let a session have the settings that a plan needs."""
    partitions = max(assignment.seating.cores, assignment.most_slots(plan))
    rows = plan.tuning.rows_per_arrow_batch or context.settings.rows_per_arrow_batch
    context.session_settings.apply(session, partitions, rows)
