"""The dry run of a new plan, while the job goes on: real rows of the last epochs, throw-away state, no sinks."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from midstream import plan as p
from midstream import storage as layout
from midstream.attempt import Attempt
from midstream.dataflow import KeyedRun
from midstream.deadline import limited
from midstream.resolve import Resolved
from midstream.routing import Routing
from midstream.slot import Epoch
from midstream.state.cache import Head
from midstream.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from midstream.engine import Engine

SAMPLE = 1_000  # rows


class Rehearsal:
    """Runs new plans on a sample of rows.

    Promised: state, sinks and journal of the job are not touched, and what is written is deleted again. Not promised:
    rows of every kind; the first epoch under the new plan may still meet one that fails.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: SparkSession | None = None

    def __call__(self, resolved: Resolved) -> int:
        """Run a plan, and give the number of rows that it was tried on; raises what the user's code raises."""
        engine, name = self._engine, f"rehearsal-{os.urandom(6).hex()}"
        if self._session is None:
            self._session = engine.spark.newSession()
        storage = Storage(engine.journal.storage.path(layout.REHEARSAL, name))
        context = engine.spark.sparkContext
        context.setJobGroup(name, f"dry run of plan version {resolved.plan.version}", interruptOnCancel=True)
        try:
            with limited(engine.settings.cut_deadline, "the dry run", lambda: context.cancelJobGroup(name)):
                rows = self._sample()
                batch = self._frame(rows)
                engine.configure(self._session, resolved)
                keyed = {o.id: self._keyed_run(resolved, o.id, name, storage) for o in _keyed(resolved)}
                Attempt(resolved, batch, 0, name, storage, engine.sources, keyed, _ignore).without_sinks()
                return rows.num_rows if rows is not None else 0
        finally:
            storage.delete("")
            shutil.rmtree(os.path.join(engine.settings.cache, name), ignore_errors=True)

    def _sample(self) -> pa.Table | None:
        """Rows of the newest epoch that has some; reading an epoch again is what sources are made for."""
        for batch in reversed(list(self._engine.batches)):
            rows = batch.where("_source >= 0").limit(SAMPLE).toArrow()
            if rows.num_rows:
                return rows
        return None

    def _frame(self, rows: pa.Table | None) -> DataFrame:
        assert self._session is not None
        schema = self._engine.batch_schema()
        if rows is None:
            return self._session.createDataFrame([], schema)
        return self._session.createDataFrame(rows, schema)

    def _keyed_run(self, resolved: Resolved, id: str, name: str, storage: Storage) -> KeyedRun:
        engine = self._engine
        clock = engine.last.clock if engine.last is not None else engine.clock()
        head = Head(name, id, storage.root, engine.settings.cache, -1, (None,) * engine.groups)
        routing = Routing.even(engine.groups, engine.slots(id, resolved))
        return KeyedRun(head, Epoch(0, clock, name, None), routing, combine=False, markers=True)


def _keyed(resolved: Resolved) -> list[p.Process | p.Aggregate]:
    return resolved.plan.of(p.Process, p.Aggregate)


def _ignore(event: object) -> None:
    return None
