"""The DataFrames of one epoch: the plan, built over one micro-batch.

Sources are cut out of the tagged union; transforms are the user's own code; a keyed operator is a projection to
(slot, group, columns), one shuffle by slot, and one Arrow task per slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from midstream import code
from midstream import plan as p
from midstream.aggregate_task import AggregateTask
from midstream.code import Code
from midstream.function_task import ORDER, TIE, FunctionTask
from midstream.resolve import Keyed, Resolved, arrow_schema, is_float
from midstream.routing import Routing
from midstream.slot import GROUP, MARKER, SLOT, Epoch, SlotTask
from midstream.sources import tagged
from midstream.state.cache import Head
from midstream.storage import log_directory

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """What one keyed operator needs in one run of an epoch."""

    head: Head
    epoch: Epoch
    routing: Routing
    combine: bool  # fold rows in the JVM before the shuffle


@dataclass(slots=True)
class Dataflow:
    """Builds the frames of one run of an epoch; `close` gives back what it persisted."""

    resolved: Resolved
    batch: DataFrame
    epoch: int
    run: str
    keyed: dict[str, KeyedRun]
    observations: dict[str, Observation] = field(default_factory=dict)  # watermark operator -> greatest event time
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _persisted: list[DataFrame] = field(default_factory=list)

    @property
    def spark(self) -> SparkSession:
        """The session of the batch, which is not the outer one."""
        return self.batch.sparkSession

    def frame(self, id: str) -> DataFrame:
        """Give the output of an operator."""
        if id not in self._frames:
            frame = self._build(self.resolved.plan[id])
            if len(self.resolved.plan.consumers(id)) > 1:
                frame = self._persist(frame)
            self._frames[id] = frame
        return self._frames[id]

    def close(self) -> None:
        """Release what was persisted for the epoch."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def prepare(self) -> None:
        """Persist the batch if it is read more than once: it is a scan that would read the sources again."""
        plan = self.resolved.plan
        if sum(len(plan.consumers(source.id)) for source in plan.of(p.Source)) > 1:
            self.batch = self._persist(self.batch)

    def _persist(self, frame: DataFrame) -> DataFrame:
        frame = frame.persist()
        self._persisted.append(frame)
        return frame

    def _build(self, operator: Any) -> DataFrame:
        plan = self.resolved.plan
        if isinstance(operator, p.Source):
            index = [source.id for source in plan.of(p.Source)].index(operator.id)
            return tagged.only(self.batch, index, self.resolved.schemas[operator.id])
        inputs = [self.frame(id) for id in operator.inputs]
        if isinstance(operator, p.Transform):
            result: DataFrame = code.load(operator.code)(inputs[0])
            return result
        if isinstance(operator, p.MapArrow):
            schema = self.resolved.schemas[operator.id]
            task = ArrowTask(operator.id, operator.code, _serialised(arrow_schema(schema)))
            return inputs[0].mapInArrow(task, schema)  # type: ignore[arg-type]
        if isinstance(operator, p.Union):
            united = inputs[0]
            for other in inputs[1:]:
                united = united.unionByName(other)
            return united
        if isinstance(operator, p.Watermark):
            self.observations[operator.id] = Observation()
            greatest = F.max(F.unix_micros(F.col(f"`{operator.column}`"))).alias("greatest")
            return inputs[0].observe(self.observations[operator.id], greatest)
        return self._keyed(operator, inputs[0])

    def _keyed(self, operator: p.Process | p.Aggregate, rows: DataFrame) -> DataFrame:
        run, keyed = self.keyed[operator.id], self.resolved.keyed[operator.id]
        located = _located(rows, operator.keys, keyed, run.routing)
        task: SlotTask
        common = {
            "operator": operator.id,
            "head": run.head,
            "epoch": run.epoch,
            "directory": log_directory(operator.id, self.epoch, self.run),
            "schema": _serialised(keyed.output),
            "keys": operator.keys,
            "groups": tuple(run.routing.groups_of(slot) for slot in range(run.routing.slots)),
        }
        if isinstance(operator, p.Aggregate):
            assert keyed.compiled is not None
            combine = run.combine or not keyed.compiled.liftable
            located = _accumulated(located, operator, keyed, self.epoch, combine)
            task = AggregateTask(**common, compiled=keyed.compiled, combined=combine)  # type: ignore[arg-type]
        else:
            located = _ordered(located, keyed, operator)
            task = FunctionTask(
                **common,  # type: ignore[arg-type]
                code=operator.code,
                state=operator.state,
                types=_serialised(keyed.state_types),
                order_by=operator.order_by,
                key_schema=_serialised(arrow_schema(keyed.keys)),
            )
        slots = run.routing.slots
        markers = _markers(self.spark, located, slots)
        placed = located.union(markers).repartitionById(slots, F.col(SLOT))
        output = self.resolved.schemas[operator.id]
        return placed.mapInArrow(task, output)  # type: ignore[arg-type]


def _located(rows: DataFrame, keys: tuple[str, ...], keyed: Keyed, routing: Routing) -> DataFrame:
    """Add group and slot: `pmod(xxhash64(key), groups)`, looked up in the routing, all in the JVM."""
    hashed = [_normal(keyed, key) for key in keys]
    group = F.pmod(F.xxhash64(*hashed), F.lit(len(routing.owners))).cast("int")
    owners = F.expr(f"array({', '.join(map(str, routing.owners))})")
    rest = [F.col(f"`{name}`") for name in rows.columns]
    placed = rows.select(group.alias(GROUP), *rest)
    return placed.select(F.get(owners, F.col(GROUP)).alias(SLOT), F.col(GROUP), *rest)


def _normal(keyed: Keyed, key: str) -> Column:
    """A key column as it is hashed: -0.0 is 0.0."""
    column = F.col(f"`{key}`")
    return column + F.lit(0.0) if is_float(keyed.input, key) else column


def _accumulated(rows: DataFrame, operator: p.Aggregate, keyed: Keyed, epoch: int, combine: bool) -> DataFrame:
    assert keyed.compiled is not None
    rows = rows.withColumn("_epoch", F.lit(epoch).cast("long"))
    names = [f"`{name}`" for name in (SLOT, GROUP, *operator.keys)]
    if combine:
        folded = [F.expr(a.combine).alias(a.name) for a in keyed.compiled.accumulators]
        return rows.groupBy(*names).agg(F.count(F.lit(1)).alias("_rows"), *folded)
    lifted = [F.expr(a.lift).alias(a.name) for a in keyed.compiled.accumulators if a.lift]
    return rows.select(*names, *lifted)


def _ordered(rows: DataFrame, keyed: Keyed, operator: p.Process) -> DataFrame:
    """Add what rows are sorted by within their key: event time, and a hash of the whole row as the tie-break."""
    columns = [
        F.to_json(f"`{f.name}`") if "map<" in f.dataType.simpleString() else F.col(f"`{f.name}`") for f in keyed.input
    ]
    rows = rows.withColumn(TIE, F.xxhash64(*columns))
    if keyed.event_time and not operator.order_by:
        moment = F.unix_micros(F.col(f"`{keyed.event_time}`"))
        rows = rows.withColumn(ORDER, F.coalesce(moment, F.lit(0).cast("long")))
    return rows


def _markers(spark: SparkSession, like: DataFrame, slots: int) -> DataFrame:
    """One row per slot that carries its identity, so that every slot runs in every epoch."""
    columns = [F.col("id").cast("int").alias(SLOT), F.lit(MARKER).alias(GROUP)]
    columns += [F.lit(None).cast(f.dataType).alias(f.name) for f in like.schema if f.name not in (SLOT, GROUP)]
    return spark.range(0, slots, 1, 1).select(*columns)


def _serialised(schema: pa.Schema | None) -> bytes:
    assert schema is not None
    return bytes(schema.serialize())


@dataclass(frozen=True)
class ArrowTask:
    """The task of `map_arrow`: the user's function, its output cast to the declared schema."""

    operator: str
    code: Code
    schema: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the user's function over the batches of a partition."""
        from midstream.errors import SchemaError

        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for batch in code.load(self.code)(batches):
            try:
                yield batch.select(schema.names).cast(schema)
            except (pa.ArrowException, KeyError, AttributeError) as error:
                shown = getattr(batch, "schema", type(batch).__name__)
                raise SchemaError(
                    f"map_arrow {self.operator!r} gave {shown}, which does not fit its schema {schema}: {error}"
                ) from None
