"""A changed plan that runs beside the real one, on the same epochs: what would be different, before anything is.

The shadow is a second engine over the same batches, with a checkpoint of its own below the job's: it begins with the
state that the job has (files are linked, not copied), keeps its own from there on, and its sinks are witnesses that
only write down the rows. After each epoch the rows of both sides are compared, sink by sink, as multisets.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint import layout
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Intent, Staged
from midstream.checkpoint.storage import Storage
from midstream.epoch.batch import Batch
from midstream.epoch.deadline import Limit
from midstream.epoch.engine import Engine
from midstream.errors import JobError, PlanError
from midstream.events import ignore
from midstream.modifications import changes
from midstream.modifications.changes import Change
from midstream.modifications.validation import validated
from midstream.operators.resolved import Resolved
from midstream.plan import code
from midstream.plan import plan as p
from midstream.sinks.contract import Sink, Staging, call
from midstream.spark.exceptions import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from midstream.modifications.handle import Modification

SAMPLES = 10  # rows that are shown of what differs, for each sink
_REAL, _SHADOW = "real", "shadow"


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of one sink under both plans, over all epochs that were compared."""

    rows: int = 0  # of the running plan
    missing: int = 0  # rows of the running plan that the shadow does not have
    extra: int = 0  # rows of the shadow that the running plan does not have
    samples: tuple[str, ...] = ()  # '- ' and a missing row, '+ ' and an extra one, as JSON

    @property
    def differ(self) -> int:
        """How many rows differ."""
        return self.missing + self.extra

    def __str__(self) -> str:
        shown = "".join(f"\n  {sample}" for sample in self.samples)
        return f"{self.rows} rows, {self.missing} missing, {self.extra} extra{shown}"


class Shadow:
    """The handle of a changed plan that runs beside the real one.

    Promised: the job's state, sinks and journal are not touched, and a shadow that fails or hangs ends alone, with
    its `error`. Not promised: time. Until it ends, an epoch takes as long as both plans; and it does not outlive the
    driver.
    """

    def __init__(
        self,
        engine: Engine,
        steps: Sequence[Change],
        rehearse: Callable[[Resolved], object],
        submit: Callable[[], Modification],
    ) -> None:
        engine.gate.threads.refuse("shadow()")
        self._engine, self._context, self._plans, self._gate = engine, engine.context, engine.plans, engine.gate
        self._steps, self._rehearse, self._submit = steps, rehearse, submit
        self._name = f"{layout.SHADOW}/{os.urandom(6).hex()}"
        self._storage = Storage(self._context.journal.storage.path(self._name))
        self._cache = os.path.join(self._context.settings.cache, self._name)
        self._found: dict[str, Compared] = {}
        self.error = ""  # why it has ended by itself, if so
        self.epochs = 0  # that were compared
        self.witness: Sink = Witness(self._storage.for_spark("rows", _REAL))
        self._twin = self._prepared()
        self._begin()

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._engine.is_followed_by(self)

    @property
    def differences(self) -> dict[str, Compared]:
        """What was found so far: sink -> rows under both plans."""
        return dict(self._found)

    def promote(self) -> Modification:
        """End the shadow and make its changes a modification of the job, whose own state goes on: `wait()` for it.

        Raises if the job has been modified since the shadow began: what was compared is not what it would become.
        """
        self.discard()
        if self._plans.running.plan.version != self._base:
            raise JobError(f"{self._overtaken()}; nothing was promoted")
        return self._submit()

    def discard(self) -> None:
        """End the shadow and delete what it has; does nothing if it has ended."""
        self._gate.threads.refuse("discard()")
        self.close()

    def close(self) -> None:
        """End the shadow with the job."""
        with self._gate.between_epochs():
            self._end()

    def follow(self, batch: Batch, intent: Intent) -> None:
        """Run an epoch that the job has committed, and compare; whatever goes wrong ends the shadow, not the job."""
        if self._plans.running.plan.version != self._base:
            self.error = self._overtaken()
            self._end()
            return
        version = self._twin.plans.running.plan.version
        try:
            with Limit(self._context.settings.cut_deadline, "the shadow", self._context.cancel_epoch):
                self._twin.run(batch, msgspec.structs.replace(intent, version=version))
                self._compare(batch.rows.sparkSession, intent.epoch)
            self.epochs += 1
        except Exception as error:
            self.error = str(explained(error))
            self._end()

    def __str__(self) -> str:
        lines = [f"{sink}: {compared}" for sink, compared in self._found.items()]
        return "\n".join([f"{self.epochs} epochs compared", *lines, *([f"ended: {self.error}"] if self.error else [])])

    def _prepared(self) -> Engine:
        """Validate the changed plan, try it, and make the engine that will run it."""
        context = self._context
        with self._gate.between_epochs():
            running = self._plans.running
            self._base = running.plan.version
            new = changes.versioned(changes.changed(running.plan, self._steps), running.plan.version + 1)
            states = self._engine.history.states
        resolved = validated(context.spark, running, new, states)
        if new.tuning != running.plan.tuning or new.of(p.Source) != running.plan.of(p.Source):
            raise PlanError("a shadow sees the epochs of the job: it cannot tune them, nor add or remove a source")
        self._rehearse(resolved)
        settings = replace(context.settings, cache=self._cache)
        own = replace(context, journal=Journal(self._storage), settings=settings, listener=ignore, guard=lambda: None)
        return Engine(own, self._witnessed(resolved), self._engine.assignment.seating.cores)

    def _overtaken(self) -> str:
        return (
            f"the job was modified since the shadow began (plan version {self._base} became "
            f"{self._plans.running.plan.version}), so the shadow shows another job; begin a new one with job.shadow"
        )

    def _begin(self) -> None:
        """Take the state of the job between two epochs, and see every epoch from there on."""
        with self._gate.between_epochs():
            if self._plans.running.plan.version != self._base:
                raise JobError(self._overtaken())
            self._engine.follow(self)
            try:
                self._fork()
                self._twin.take_up()
            except BaseException:
                self._end()
                raise

    def _witnessed(self, resolved: Resolved) -> Resolved:
        """The changed plan with other sinks: they only write rows down."""
        witness = Witness(self._storage.for_spark("rows", _SHADOW))
        operators = tuple(
            msgspec.structs.replace(o, code=code.capture_live(witness)) if isinstance(o, p.Sink) else o
            for o in resolved.plan.operators
        )
        return replace(resolved, plan=msgspec.structs.replace(resolved.plan, operators=operators))

    def _fork(self) -> None:
        """Begin with the state of the job; what its last epoch staged for sinks is none of the shadow's business."""
        history = self._engine.history
        if history.last is not None:
            for directory in (layout.COMMITS, layout.STATE):
                self._context.journal.storage.link(directory, self._storage)
            Journal(self._storage).write_commit(msgspec.structs.replace(history.last, sinks=()))
            Journal(self._storage).write_forgotten(history.forgotten)

    def _end(self) -> None:
        if self._engine.unfollow(self):
            self._storage.delete("")
            shutil.rmtree(self._cache, ignore_errors=True)

    def _compare(self, spark: SparkSession, epoch: int) -> None:
        real, shadow = _schemas(self._plans.running), _schemas(self._twin.plans.running)
        for sink in {**real, **shadow}:
            ours = self._rows(spark, _REAL, sink, epoch, real.get(sink))
            theirs = self._rows(spark, _SHADOW, sink, epoch, shadow.get(sink))
            self._found[sink] = _added(self._found.get(sink, Compared()), ours, theirs)
        self._storage.delete("rows")

    def _rows(self, spark: SparkSession, side: str, sink: str, epoch: int, schema: StructType | None) -> DataFrame:
        if schema is None:  # the sink is not part of this plan
            return spark.createDataFrame([], "row string")
        path = self._storage.for_spark("rows", side, f"{epoch:012}", sink)
        whole = "to_json(struct(*), map('ignoreNullFields', 'false')) as row"
        return spark.read.schema(schema).parquet(path).selectExpr(whole)


class Witness(Sink):
    """Writes the rows of an epoch down, for the comparison after it."""

    guarantee = "the rows of one run of an epoch, until they are compared"

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Write the rows, over those of another run."""
        df.write.mode("overwrite").parquet(f"{self._directory}/{staging.epoch:012}/{staging.sink}")
        return Staged(staging.sink, staging.job, staging.epoch, "", ())

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Do nothing: nobody looks."""

    def clean(self, what: Staging | Staged) -> None:
        """Do nothing: the shadow deletes what was compared."""

    def describe(self) -> str:
        """Name the sink."""
        return call("witness")


def _added(before: Compared, real: DataFrame, shadow: DataFrame) -> Compared:
    both = real.selectExpr("row", "1L as a", "0L as b").unionAll(shadow.selectExpr("row", "0L as a", "1L as b"))
    rows = both.groupBy("row").agg({"a": "sum", "b": "sum"}).toDF("row", "a", "b")
    found = rows.selectExpr("sum(a)", "sum(greatest(a - b, 0))", "sum(greatest(b - a, 0))").collect()[0]
    total, missing, extra = (int(number or 0) for number in found)
    samples = before.samples
    if (missing or extra) and len(samples) < SAMPLES:
        some = rows.where("a <> b").limit(SAMPLES - len(samples)).collect()
        samples = (*samples, *(f"{'-' if row.a > row.b else '+'} {row.row}" for row in some))
    return Compared(before.rows + total, before.missing + missing, before.extra + extra, samples)


def _schemas(resolved: Resolved) -> dict[str, StructType]:
    return {sink.id: resolved.schemas[sink.id] for sink in resolved.plan.of(p.Sink)}
