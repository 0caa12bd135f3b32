"""The DataFrames of one epoch: the plan, built over one micro-batch.

Sources are cut out of the tagged union; transforms are the user's own code; a keyed operator is a projection to
(slot, group, columns), one shuffle by slot, and one Arrow task per slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField, StructType

from midstream.checkpoint.layout import backlog_directory, log_directory
from midstream.operators.aggregates.declare import CLOSES, WHOLE
from midstream.operators.aggregates.task import AggregateTask
from midstream.operators.dead_letters import (
    ERRORS,
    FAILED,
    beside_failed,
    shown,
    without_failed,
)
from midstream.operators.functions.task import (
    BROADCAST,
    ORDER,
    TIE,
    FunctionTask,
    Told,
)
from midstream.operators.joins.common_form import SideForm
from midstream.operators.joins.rules import Join
from midstream.operators.joins.task import JoinTask
from midstream.operators.map_arrow import ArrowTask
from midstream.operators.resolve import Keyed, Resolved, arrow_schema
from midstream.operators.shuffle import (
    KeyedRun,
    accumulators,
    moment_column,
    placement,
)
from midstream.operators.task import GROUP, SlotTask
from midstream.operators.watermarks import observed
from midstream.operators.windows.by_count.rules import CountWindows
from midstream.operators.windows.by_count.task import CountTask
from midstream.operators.windows.sessions import SessionTask
from midstream.operators.windows.sql import WindowSql
from midstream.operators.windows.task import WindowTask
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.plan.sql import quote
from midstream.plan.windows import Session
from midstream.sources import union
from midstream.sources.split import parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SEEN = "seen"  # what an observation has seen
_BATCH = "_midstream_batch"


@dataclass(slots=True)
class Dataflow:
    """Builds the frames of one run of an epoch; `close` gives back what it persisted."""

    resolved: Resolved
    batch: DataFrame
    epoch: int
    run: str
    keyed: dict[str, KeyedRun]
    tags: dict[str, int]  # source -> its tag in the batch
    clock: int = 0  # of the epoch
    execution: Callable[[], Any] = lambda: None  # what Spark has planned for the batch, if it has
    observations: dict[str, Observation] = field(default_factory=dict)  # watermark operator -> greatest event time
    late: dict[str, Observation] = field(default_factory=dict)  # spread -> rows that no window takes
    failed: dict[str, Observation] = field(default_factory=dict)  # map_arrow -> rows that it puts aside
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _raw: dict[str, DataFrame] = field(default_factory=dict)  # what tasks give that give late rows, or errors, too
    _persisted: list[DataFrame] = field(default_factory=list)
    _parts: dict[int, DataFrame] = field(
        default_factory=dict
    )  # tag -> the rows of a source, where the batch is taken apart

    @property
    def _sql(self) -> WindowSql:
        return WindowSql(self.resolved, self.keyed, self.clock)

    @property
    def spark(self) -> SparkSession:
        """The session of the batch, which is not the outer one."""
        return self.batch.sparkSession

    def frame(self, id: str) -> DataFrame:
        """Return the output of an operator."""
        if id not in self._frames:
            frame = self._build(self.resolved.plan[id])
            if not self._is_read_once(id):
                frame = self.kept(frame)
            self._frames[id] = frame
        return self._frames[id]

    def run_alone(self, id: str) -> None:
        """Run all slots of a keyed operator, to no sink."""
        operator = self.resolved.plan[id]
        assert isinstance(operator, (p.Process, p.Aggregate))
        self._keyed(operator, markers=True).write.format("noop").mode("overwrite").save()

    def close(self) -> None:
        """Release what was persisted for the epoch."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def prepare(self) -> None:
        """See that no source is read twice, though the batch is a scan of all of them: take it apart, or keep it."""
        read = [self.tags[source.id] for source in self.resolved.plan.of(p.Source)]
        execution = None if self.batch.is_cached else self.execution()
        parts = parts_of(self.batch, execution, read) if execution is not None else None
        if parts is None and len(read) > 1:
            self.batch = self.kept(self.batch)
        self._parts = parts or {}

    def kept(self, frame: DataFrame) -> DataFrame:
        """Keep rows that are read more than once, until `close`."""
        frame = frame.persist()
        self._persisted.append(frame)
        return frame

    def _build(self, operator: Any) -> DataFrame:
        if isinstance(operator, p.Source):  # not as text, which wants a view: that takes longer to make
            tag = self.tags[operator.id]
            rows = self._parts[tag] if tag in self._parts else self.batch.where(union.is_of(tag))
            return rows.selectExpr(*union.columns(tag, self.resolved.schemas[operator.id]))
        if isinstance(operator, p.Watermark):
            return self._observed(operator, self.frame(operator.inputs[0]))
        query = self._query(operator)
        if query is not None:
            return self.spark.sql(query)
        if isinstance(operator, p.Spread):
            return self._spread(operator)
        if self._gives_late(operator):
            names = map(quote, self.resolved.schemas[operator.id].names)
            return self._sessions(operator).where(f"{WHOLE} is null").selectExpr(*names)
        if isinstance(operator, p.Errors):
            return self.failures(operator.of)
        if p.gives_errors(operator):
            return without_failed(self.with_errors(operator), self.resolved.schemas[operator.id].names)
        if isinstance(operator, (p.Process, p.Aggregate)):
            return self._keyed(operator, markers=self.keyed[operator.id].markers)
        (input,) = (self.frame(id) for id in operator.inputs)
        if isinstance(operator, p.Transform):
            result: DataFrame = code.load(operator.code)(input)
            return result
        if isinstance(operator, p.MapArrow):
            return self._mapped(operator, input)
        raise AssertionError(f"{operator.id!r} has no output")

    def _mapped(self, operator: p.MapArrow, rows: DataFrame) -> DataFrame:
        schema, puts_aside = self.resolved.schemas[operator.id], p.gives_errors(operator)
        if puts_aside:
            schema = beside_failed(schema, self.resolved.schemas[operator.inputs[0]])
        task = ArrowTask(operator.id, operator.code, _serialised(arrow_schema(schema)), puts_aside)
        return rows.mapInArrow(task, schema)

    def with_errors(self, operator: p.Process | p.MapArrow) -> DataFrame:
        """What an operator gives out and what it fails on, kept: both are read, and its task runs once."""
        if operator.id not in self._raw:
            if isinstance(operator, p.Process):
                both = self._keyed(operator, markers=self.keyed[operator.id].markers)
            else:  # its task makes no report
                self.failed[operator.id] = Observation()
                both = self._mapped(operator, self.frame(operator.inputs[0]))
                both = both.observe(self.failed[operator.id], F.count(FAILED).alias(SEEN))
            self._raw[operator.id] = self.kept(both)
        return self._raw[operator.id]

    def failures(self, id: str) -> DataFrame:
        """What an operator has put aside, and why."""
        operator = self.resolved.plan[id]
        if not p.gives_errors(operator):
            return self.spark.createDataFrame([], ERRORS)
        return shown(self.with_errors(operator), operator.id, operator.keys if isinstance(operator, p.Process) else ())

    def _query(self, operator: Any) -> str | None:
        """The output of an operator as a query, of those that are known as text."""
        if isinstance(operator, p.Source):
            tag, view = self.tags[operator.id], f"{_BATCH}_{self.tags[operator.id]}"
            self._parts.get(tag, self.batch).createOrReplaceTempView(view)
            columns = ", ".join(union.columns(tag, self.resolved.schemas[operator.id]))
            return f"select {columns} from {view} where {union.is_of(tag)}"
        if isinstance(operator, p.Watermark) and not self._is_observed(operator):
            return f"select * from {self._table(operator.inputs[0])}"
        if isinstance(operator, p.Union):
            return " union all ".join(f"select * from {self._table(id)}" for id in operator.inputs)
        if isinstance(operator, p.Late):
            return self._late(operator)
        if isinstance(operator, p.Transform) and isinstance(form := code.load(operator.code), SideForm):
            return form.query(self._table(operator.inputs[0]))
        return None

    def _observed(self, operator: p.Watermark, rows: DataFrame) -> DataFrame:
        if not self._is_observed(operator):
            return rows
        self.observations[operator.id] = Observation()
        greatest = F.expr(f"max({observed(operator, self.clock)})").alias(SEEN)
        return rows.observe(self.observations[operator.id], greatest)

    def _is_observed(self, operator: p.Watermark) -> bool:
        """Whether somebody asks for the event times; observing them costs time for every row."""
        return any(operator.id in keyed.watermarks for keyed in self.resolved.keyed.values())

    def _spread(self, windows: p.Spread) -> DataFrame:
        """Each row once for every window that takes it; those that none takes are counted."""
        is_taken, (starts, *bounds) = self._sql.is_taken(windows), self._sql.spread(windows)
        self.late[windows.id] = Observation()
        rows = self.frame(windows.inputs[0])
        rows = rows.observe(self.late[windows.id], F.expr(self._sql.count_late(windows)).alias(SEEN))
        return rows.where(is_taken).selectExpr("*", starts).selectExpr("* except (_start)", *bounds)

    def count_late(self, windows: p.Spread) -> int:
        """Count the rows that no window takes, where that was not observed."""
        return int(self.frame(windows.inputs[0]).selectExpr(self._sql.count_late(windows)).collect()[0][0])

    def _sessions(self, window: p.Window) -> DataFrame:
        """Sessions, and in a column of their own the rows that are late, where somebody reads these."""
        if window.id not in self._raw:
            self._raw[window.id] = self.kept(self._keyed(window, markers=self.keyed[window.id].markers))
        return self._raw[window.id]

    def _late(self, late: p.Late) -> str:
        """The rows that windows do not take, and why."""
        windows = p.windows_late_for(self.resolved.plan, late)
        if not self._gives_late(windows):
            return self._sql.late(late, self._table(late.inputs[0]))
        view = f"{_BATCH}_late_{list(self.resolved.keyed).index(windows.id)}"
        self._sessions(windows).selectExpr(f"inline({WHOLE})").createOrReplaceTempView(view)
        return self._sql.late(late, view)

    def _gives_late(self, operator: Any) -> TypeGuard[p.Window]:
        """Whether these are sessions whose late rows somebody reads: only their task knows which these are."""
        is_session = isinstance(operator, p.Window) and operator.is_session
        return is_session and any(late.of == operator.id for late in self.resolved.plan.of(p.Late))

    def _is_read_once(self, id: str) -> bool:
        """Whether one operator reads an output: late rows of sessions come from these, and not from their input."""
        plan = self.resolved.plan
        readers = [o for o in plan.consumers(id) if not (isinstance(o, p.Late) and self._gives_late(plan[o.of]))]
        return sum(not isinstance(reader, p.Errors) for reader in readers) < 2

    def _table(self, id: str) -> str:
        """The output of an operator as something to select from: one text costs the driver less than two frames."""
        query = self._query(self.resolved.plan[id]) if self._is_read_once(id) else None
        if query is not None:
            return f"({query})"
        frame = self.frame(id)
        view = f"_midstream_{list(self._frames).index(id)}"
        frame.createOrReplaceTempView(view)
        return view

    def _keyed(self, operator: p.Process | p.Aggregate, *, markers: bool) -> DataFrame:
        run, keyed = self.keyed[operator.id], self.resolved.keyed[operator.id]
        rows, schema = self._table(operator.inputs[0]), self.resolved.schemas[operator.id]
        common: dict[str, Any] = {
            "operator": operator.id,
            "head": run.head,
            "epoch": run.epoch,
            "directory": log_directory(run.head.home, self.epoch, self.run),
            "aside": backlog_directory(run.head.home, self.epoch, self.run),
            "schema": _serialised(keyed.output),
            "keys": tuple(keyed.keys.names),
            "routing": run.routing,
        }
        task: SlotTask
        told = ""  # what every group gets
        if isinstance(operator, p.Aggregate):
            assert keyed.compiled is not None
            is_session = isinstance(operator, p.Window) and operator.is_session
            combine = (run.combine and not is_session) or not keyed.compiled.liftable  # few rows have one key and time
            columns = accumulators(keyed.compiled, combine)
            common |= {"compiled": keyed.compiled, "combined": combine}
            task = AggregateTask(**common)
            if isinstance(operator, p.Window):
                rows = f"(select *, {self._sql.pane(operator)} as {moment_column(operator)} from {rows})"
                if operator.punctuation:
                    says = f"bool_or({operator.punctuation})" if combine else f"({operator.punctuation})"
                    columns[CLOSES] = f"coalesce({says}, false)"
                common |= {"lateness": operator.lateness, "updates": operator.emit == "update"}
                spec = operator.spec
                if isinstance(spec, Session):
                    if gives_late := self._gives_late(operator):
                        columns[WHOLE] = _whole(keyed.input, combine)
                        schema = _beside_late(schema, keyed.input)
                        common["schema"] = _serialised(arrow_schema(schema))
                    task = SessionTask(**common, gives_late=gives_late)
                else:
                    common |= {
                        "regimes": self._sql.regimes(operator),
                        "of_windows": self._sql.is_of_windows(operator),
                    }
                    task = WindowTask(**common)
        else:
            combine = False
            columns = _columns_in_order(keyed.input, keyed.event_time, operator.order_by)
            if operator.told is not None:
                columns[BROADCAST] = "null"
                told = self._told(operator.told, operator.told_by, keyed, run.routing)
            common |= {"code": operator.code, "stages": keyed.stages, "order_by": operator.order_by}
            function = code.load(operator.code)
            if isinstance(function, Join):
                task = JoinTask(**common)
            elif isinstance(function, CountWindows):
                task = CountTask(**common, event_time=keyed.event_time)
            else:
                if puts_aside := p.gives_errors(operator):
                    schema = beside_failed(schema, keyed.input)
                    common["schema"] = _serialised(arrow_schema(schema))
                task = FunctionTask(
                    **common,
                    dead_letters=puts_aside,
                    key_schema=_serialised(arrow_schema(keyed.keys)),
                    event_time=keyed.event_time,
                    shared=keyed.shared,
                    told=None if operator.told is None else Told(operator.told_by, keyed.told_time),
                    in_windows=p.windows_of(self.resolved.plan, operator.id) is not None,
                )
        query = placement(rows, operator, keyed, run, columns, told, combine=combine, markers=markers)
        return self.spark.sql(query).mapInArrow(task, schema)

    def _told(self, id: str, order_by: tuple[str, ...], keyed: Keyed, routing: Routing) -> str:
        """The rows that every group gets, once for each."""
        columns = _columns_in_order(self.resolved.schemas[id], keyed.told_time, order_by)
        whole = ", ".join(f"{expression} as {quote(name)}" for name, expression in columns.items())
        groups = f"explode(sequence(0, {len(routing.owners) - 1}))"
        return f"select struct({whole}) as {BROADCAST}, {groups} as {GROUP} from {self._table(id)}"


def _whole(rows: StructType, combine: bool) -> str:
    """All columns of a row, or of all rows that the JVM folds into one, as a list."""
    row = f"struct({', '.join(quote(field.name) for field in rows)})"
    return f"collect_list({row})" if combine else f"array({row})"


def _beside_late(sessions: StructType, rows: StructType) -> StructType:
    """The columns of sessions and late rows together: whatever is of the other kind is null."""
    fields = [StructField(field.name, field.dataType) for field in sessions]
    return StructType([*fields, StructField(WHOLE, ArrayType(rows))])


def _columns_in_order(schema: StructType, event_time: str | None, order_by: tuple[str, ...]) -> dict[str, str]:
    """All columns, and what rows of a key are sorted by: event time, and a hash of the whole row as the tie-break."""
    columns = {field.name: quote(field.name) for field in schema}
    whole = [f"to_json({quote(f.name)})" if "map<" in f.dataType.simpleString() else quote(f.name) for f in schema]
    columns[TIE] = f"xxhash64({', '.join(whole)})"
    if event_time and not order_by:
        columns[ORDER] = f"coalesce(unix_micros({quote(event_time)}), 0L)"
    return columns


def _serialised(schema: pa.Schema | None) -> bytes:
    assert schema is not None
    return bytes(schema.serialize())
