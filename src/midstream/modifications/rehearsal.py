"""The dry run of a new plan, while the job goes on: real rows of the last epochs, throw-away state, no sinks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import Feed, grown, tags
from midstream.checkpoint.storage import Storage
from midstream.epoch.attempt import Attempt
from midstream.epoch.batch import batch_schema
from midstream.epoch.context import JobContext
from midstream.epoch.deadline import Limit
from midstream.epoch.history import History
from midstream.epoch.observed import Observed
from midstream.epoch.plans import Plans
from midstream.epoch.runner import apply_settings
from midstream.events import ignore
from midstream.modifications.phases import Tried
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.resolved import Resolved
from midstream.operators.schemas import arrow_schema
from midstream.operators.task import Epoch
from midstream.placement.assignment import Assignment
from midstream.plan import plan as p
from midstream.plan.compatibility import on_trial
from midstream.plan.routing import Routing
from midstream.state.history import Head

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE = 1_000  # rows


class Rehearsal:
    """Runs new plans on a sample of rows.

    Promised: state, sinks and journal of the job are not touched, and what is written is deleted again. Not promised:
    rows of every kind; the first epoch under the new plan may still meet one that fails.
    """

    def __init__(
        self, context: JobContext, plans: Plans, history: History, assignment: Assignment, observed: Observed
    ) -> None:
        self._context, self._plans, self._history = context, plans, history
        self._assignment, self._observed = assignment, observed
        self._session: SparkSession | None = None
        self._limit: Limit | None = None  # of the one under way

    def give_up(self, why: str) -> None:
        """End the dry run that is under way, if one is."""
        if self._limit is not None:
            self._limit.give_up(why)

    def __call__(self, resolved: Resolved, feeds: tuple[Feed, ...]) -> Tried:
        """Run a plan, and say on how many rows it was tried; raises what the user's code raises.

        Args:
            resolved: the plan.
            feeds: the sources of the query at hand, which has read the rows.
        """
        name = f"rehearsal-{os.urandom(6).hex()}"
        storage = Storage(self._context.journal.storage.path(layout.REHEARSAL, name))
        spark = self._context.spark.sparkContext
        spark.setJobGroup(name, f"dry run of plan version {resolved.plan.version}", interruptOnCancel=True)
        try:
            deadline = self._context.settings.cut_deadline
            self._limit = Limit(deadline, "the dry run", lambda: spark.cancelJobGroup(name))
            with self._limit:
                rows, note = self._sample()
                self._run(resolved, grown(feeds, resolved.plan, {}, heartbeat=False), rows, name, storage)
                return Tried(rows.num_rows if rows is not None else 0, note)
        finally:
            self._limit = None
            storage.delete("")

    def _run(
        self, resolved: Resolved, feeds: tuple[Feed, ...], rows: pa.Table | None, name: str, storage: Storage
    ) -> None:
        if self._session is None:
            self._session = self._context.spark.newSession()
        batch = _frame(self._session, rows, batch_schema(feeds))
        apply_settings(self._context, self._assignment, self._session, resolved.plan)
        operators = resolved.plan.of(p.KeyedOperator)
        keyed = {o.id: self._keyed_run(resolved, o.id, name, storage) for o in operators}
        trial = on_trial(self._plans.running.plan, resolved.plan)
        attempt = Attempt(resolved, batch, 0, name, storage, tags(feeds), keyed, ignore, on_trial=trial)
        attempt.without_sinks()

    def _sample(self) -> tuple[pa.Table | None, str]:
        """Rows of the newest epoch that has some, or why there are none: a source may not keep what was committed."""
        note = "there were no rows in the last epochs, so the new code was tried on none"
        for batch in self._observed.rows:
            try:
                rows = batch.where("_source >= 0").limit(SAMPLE).toArrow()
            except (PySparkException, Py4JError) as error:
                lines = str(error).strip().splitlines()
                reason = next((line for line in lines if line.startswith(("Caused by", ": "))), lines[0])
                note = (
                    f"the rows of the last epochs could not be read again, so the new code was tried on none: {reason}"
                )
                continue
            if rows.num_rows:
                return rows, ""
        return None, note

    def _keyed_run(self, resolved: Resolved, id: str, name: str, storage: Storage) -> KeyedRun:
        last, groups = self._history.last, self._context.groups
        clock = last.clock if last is not None else self._context.clock.reading()
        head = Head(name, id, storage.root, "", -1, (None,) * groups, throw_away=True)
        routing = Routing.even(groups, self._assignment.slots(resolved.plan, id))
        return KeyedRun(head, Epoch(0, clock, name, None), routing, combine=False, markers=True)


def _frame(session: SparkSession, rows: pa.Table | None, schema: StructType) -> DataFrame:
    if rows is None:
        return session.createDataFrame([], schema)
    arrow = arrow_schema(schema)
    for field in [arrow.field(name) for name in arrow.names if name not in rows.schema.names]:  # of new sources
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return session.createDataFrame(rows.select(arrow.names), schema)
