"""The dry run of a new plan, while the job goes on: real rows of the last epochs, throw-away state, no sinks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import grown, tags
from midstream.checkpoint.storage import Storage
from midstream.epoch.attempt import Attempt
from midstream.epoch.deadline import Limit
from midstream.events import ignore
from midstream.modifications.phases import Tried
from midstream.operators.resolved import Resolved
from midstream.operators.schemas import arrow_schema
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Epoch
from midstream.plan import plan as p
from midstream.plan.compatibility import on_trial
from midstream.plan.routing import Routing
from midstream.state.history import Head

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from midstream.epoch.engine import Engine

SAMPLE = 1_000  # rows


class Rehearsal:
    """Runs new plans on a sample of rows.

    Promised: state, sinks and journal of the job are not touched, and what is written is deleted again. Not promised:
    rows of every kind; the first epoch under the new plan may still meet one that fails.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: SparkSession | None = None
        self._limit: Limit | None = None  # of the one under way

    def give_up(self, why: str) -> None:
        """End the dry run that is under way, if one is."""
        if self._limit is not None:
            self._limit.give_up(why)

    def __call__(self, resolved: Resolved) -> Tried:
        """Run a plan, and say on how many rows it was tried; raises what the user's code raises."""
        engine, name = self._engine, f"rehearsal-{os.urandom(6).hex()}"
        if self._session is None:
            self._session = engine.spark.newSession()
        storage = Storage(engine.journal.storage.path(layout.REHEARSAL, name))
        context = engine.spark.sparkContext
        context.setJobGroup(name, f"dry run of plan version {resolved.plan.version}", interruptOnCancel=True)
        try:
            self._limit = Limit(engine.settings.cut_deadline, "the dry run", lambda: context.cancelJobGroup(name))
            with self._limit:
                rows, note = self._sample()
                feeds = grown(engine.feeds, resolved.plan, {}, heartbeat=False)
                batch = self._frame(rows, engine.batch_schema(feeds))
                engine.configure(self._session, resolved)
                keyed = {o.id: self._keyed_run(resolved, o.id, name, storage) for o in _keyed(resolved)}
                trial = on_trial(engine.resolved.plan, resolved.plan)
                attempt = Attempt(resolved, batch, 0, name, storage, tags(feeds), keyed, ignore, on_trial=trial)
                attempt.without_sinks()
                return Tried(rows.num_rows if rows is not None else 0, note)
        finally:
            self._limit = None
            storage.delete("")

    def _sample(self) -> tuple[pa.Table | None, str]:
        """Rows of the newest epoch that has some, or why there are none: a source may not keep what was committed."""
        note = "there were no rows in the last epochs, so the new code was tried on none"
        for batch in reversed(list(self._engine.batches)):
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

    def _frame(self, rows: pa.Table | None, schema: StructType) -> DataFrame:
        assert self._session is not None
        if rows is None:
            return self._session.createDataFrame([], schema)
        arrow = arrow_schema(schema)
        for field in [arrow.field(name) for name in arrow.names if name not in rows.schema.names]:  # of new sources
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return self._session.createDataFrame(rows.select(arrow.names), schema)

    def _keyed_run(self, resolved: Resolved, id: str, name: str, storage: Storage) -> KeyedRun:
        engine = self._engine
        clock = engine.last.clock if engine.last is not None else engine.clock.reading()
        head = Head(name, id, storage.root, "", -1, (None,) * engine.groups, throw_away=True)
        routing = Routing.even(engine.groups, engine.assignment.slots(resolved.plan, id))
        return KeyedRun(head, Epoch(0, clock, name, None), routing, combine=False, markers=True)


def _keyed(resolved: Resolved) -> list[p.KeyedOperator]:
    return resolved.plan.of(p.KeyedOperator)
