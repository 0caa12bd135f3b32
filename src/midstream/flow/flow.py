"""What the user writes: a flow of streams between sources and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec

from midstream.durations import Duration
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.flow.builders import Broadcast
from midstream.flow.triggers import Trigger, every
from midstream.operators.functions.declare import KeyedFunction
from midstream.plan import plan as p
from midstream.plan.plan import AggregateSpec, AnyOperator, Plan
from midstream.plan.windows import AnyWindow, CountWindow, Window
from midstream.sources.given import given, session_at_hand

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from midstream.flow.joins import Between
    from midstream.flow.windowed import WindowedStream
    from midstream.job.job import Job
    from midstream.sinks.contract import Sink


class Flow:
    """A named set of streams; `start` makes it a job.

    Promised: nothing runs before `start`, and `start` refuses a flow that cannot work, saying why.

    >>> flow = Flow("empty")
    >>> flow.plan().name
    'empty'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources: dict[str, DataFrame] = {}
        self._operators: list[AnyOperator] = []

    @classmethod
    def of(cls, plan: Plan) -> Flow:
        """A flow that begins with the operators of a plan; it cannot be started, since it makes no sources."""
        flow = cls(plan.name)
        flow._operators = list(plan.operators)
        return flow

    def stream(self, id: str) -> Stream:
        """The output of an operator that is there already: `flow.stream("counts")`."""
        plan = self.plan()
        plan[id]
        windows = p.windows_of(plan, id)
        if windows is None:
            return Stream(self, id)
        from midstream.flow.windowed import Windowed

        return Windowed(self, id, windows.inputs[0])

    @property
    def session(self) -> SparkSession:
        """The session of the sources."""
        return next((frame.sparkSession for frame in self.sources.values()), None) or session_at_hand()

    def source(self, id: str, source: DataFrame | Callable[..., DataFrame]) -> Stream:
        """Add a source: any streaming DataFrame without stateful operators, or a function of the session giving one.

        A function is what a running job needs to make the source anew: `ms.add_source` takes nothing else. If it has
        a parameter `max_rows`, `ms.tune(max_rows_per_epoch=...)` sets it.
        """
        operator, frame = given(id, source)
        stream = self._add(operator)
        self.sources[id] = frame
        return stream

    def union(self, id: str, *streams: Stream) -> Stream:
        """Put streams of one schema together."""
        return self._add(p.Union(id=id, inputs=tuple(stream.id for stream in streams)))

    def plan(self) -> Plan:
        """Give the flow in its frozen form."""
        return Plan(name=self.name, operators=tuple(self._operators))

    def start(
        self,
        checkpoint: str | PathLike[str],
        *,
        trigger: Trigger | None = None,
        on_drift: str = "fail",
        savepoint: str | PathLike[str] | None = None,
        groups: int | None = None,
        **options: Any,
    ) -> Job:
        """Start the flow as a job, or go on with the job of this checkpoint.

        Args:
            checkpoint: directory of the job: a path, or a URI that both Spark and `pyarrow.fs` know.
            trigger: `every("1 second")` (the default) or `available_now()`.
            on_drift: what to do if the flow differs from the one that the checkpoint ran last: "fail" shows the
                difference, "keep" goes on with the old plan, "apply" goes on with this one, as a modification:
                it is in `job.modifications`, is rolled back if its first epoch fails, and can be undone.
            savepoint: start a new checkpoint from this savepoint.
            groups: number of key-groups, fixed for the job's life (128).
            options: see `midstream.job.start.start`.
        """
        from midstream.job.start import start

        return start(
            self, checkpoint, trigger=trigger or every("1 second"), on_drift=on_drift, savepoint=savepoint,
            groups=groups, **options,
        )  # fmt: skip

    def _add(self, operator: AnyOperator) -> Stream:
        if any(known.id == operator.id for known in self._operators):
            raise PlanError(f"the id {operator.id!r} is used twice in flow {self.name!r}; give each operator its own")
        self._operators.append(operator)
        return Stream(self, operator.id)


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of an operator; any number of others may read it."""

    flow: Flow
    id: str

    def transform(self, id: str, function: Callable[[DataFrame], DataFrame], *, per_epoch: bool = False) -> Stream:
        """Apply a DataFrame function, in the JVM: select, filter, join with a table, UDFs.

        Promised: what runs, also in UDFs on the executors, is the function as it is now, with what it uses, as a copy.
        Not promised: memory of earlier epochs. A function that aggregates, deduplicates, sorts or limits would see one
        epoch at a time, and is refused unless `per_epoch=True` says that this is meant.
        """
        return self._then(builders.transform(function, per_epoch=per_epoch, id=id))

    def map_arrow(
        self,
        id: str,
        function: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]],
        *,
        schema: str,
        on_error: str = "fail",
    ) -> Stream:
        """Apply a function to Arrow batches, on the executors.

        With `on_error="dead_letter"` it is called for one batch at a time, and again for less and less of a batch
        that it fails on: the rows that it fails on alone are in `.errors`. It must not remember other batches.
        """
        return self._then(builders.map_arrow(function, schema=schema, on_error=on_error, id=id))

    def with_watermark(
        self,
        column: str,
        delay: Duration,
        *,
        idle_after: Duration = 0,
        ahead: Duration = 0,
        punctuation: str = "",
        id: str | None = None,
    ) -> Stream:
        """Declare the event-time column, and by how much rows may come late.

        Args:
            column: a timestamp.
            delay: how far a row may lie behind the greatest time before it.
            idle_after: a stream that has had no rows for so long, by the clock of the epochs, does not hold back
                operators that read others too; 0: it holds them back until it has some.
            ahead: a row further ahead of the clock of its epoch does not move the watermark, and windows put it into
                `.late`: one bad clock does not close every window. 0: there is no such bound.
            punctuation: SQL. A row for which it holds says that no row before its time follows: the watermark goes
                there at once, without the delay.
            id: of the operator; that of this stream and ".watermark" by default.
        """
        made = builders.watermark(
            column, delay, idle_after=idle_after, ahead=ahead, punctuation=punctuation, id=id or f"{self.id}.watermark"
        )
        return self._then(made)

    def union(self, id: str, *others: Stream) -> Stream:
        """Put this stream and others of its schema together."""
        return self.flow.union(id, self, *others)

    def key_by(self, *columns: str, partition_by: str = "") -> KeyedStream:
        """Group rows by columns: state, and the order of rows, are per key.

        `partition_by` is SQL over these columns: keys for which it is equal are kept together, in one key-group, and
        move together. `key_by("city", "street", partition_by="city")` has a city in one place; by default keys are
        spread by a hash of all their columns. A few large values make a few large groups, and that cannot be mended.
        """
        if not columns:
            raise PlanError(f"key_by on {self.id!r} needs at least one column")
        return KeyedStream(self.flow, self.id, columns, partition_by)

    def window(self, window: AnyWindow | CountWindow) -> WindowedStream:
        """Put all rows into windows: `ms.tumbling`, `ms.sliding` or `ms.session` of event time, `ms.count_window`."""
        from midstream.flow.windowed import WindowedStream

        return WindowedStream(self.flow, self.id, (), window)

    def deduplicate(self, id: str, *columns: str, within: Duration) -> Stream:
        """Drop rows that repeat the columns of another one; see `KeyedStream.deduplicate`."""
        return self.key_by(*columns).deduplicate(id, within=within)

    def sink(self, id: str, sink: Sink) -> None:
        """Write the rows of this stream somewhere."""
        self._then(builders.sink(sink, id=id))

    @property
    def errors(self) -> Stream:
        """What the function of this operator has failed on: of `process` and `map_arrow`, with on_error="dead_letter".

        Columns: `operator`, `reason`, `traceback`, `key` and `row` as JSON, and `timer`, which has no row.
        """
        operator, id = self.flow.plan()[self.id], f"{self.id}.errors"
        if not p.gives_errors(operator):
            raise PlanError(
                f"{self.id!r} has no errors to read: say on_error='dead_letter' in its process(...) or map_arrow(...)"
            )
        if any(known.id == id for known in self.flow.plan().operators):
            return Stream(self.flow, id)
        return self.flow._add(p.Errors(id=id, inputs=(self.id,), of=self.id))

    def broadcast(self, *, order_by: str | Iterable[str] = ()) -> Broadcast:
        """Let every key-group of an operator have these rows: `process(..., broadcast=rules.broadcast())`."""
        return builders.broadcast(self.id, order_by=order_by)

    def _then(self, operator: AnyOperator) -> Stream:
        return self.flow._add(msgspec.structs.replace(operator, inputs=(self.id, *operator.inputs)))


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream with a key."""

    flow: Flow
    input: str
    keys: tuple[str, ...]
    partition_by: str = ""

    @property
    def _keys(self) -> builders.Keys:
        return builders.key_by(*self.keys, partition_by=self.partition_by)

    def process(
        self,
        id: str,
        function: KeyedFunction,
        *,
        schema: str,
        slots: int = 0,
        order_by: str | Iterable[str] = (),
        broadcast: Broadcast | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Apply a `KeyedFunction`; `schema` is the DDL of the rows that it yields.

        Rows of a key come in the order of event time (or of `order_by`), ties in a stable order. The function's
        `on_broadcast` gets the rows of `broadcast`, another stream, first.

        With `on_error="dead_letter"` a call of `process` or `on_timer` that raises, or yields what does not fit, has
        not been: state, timers and output are as before it, and the rows of the call, or the timer, are in `.errors`.
        """
        operator = self._keys.process(
            function, schema=schema, slots=slots, order_by=order_by, broadcast=broadcast, on_error=on_error, id=id
        )
        return Stream(self.flow, self.input)._then(operator)

    def aggregate(self, id: str, *, slots: int = 0, **aggregates: AggregateSpec) -> Stream:
        """Keep declared aggregates per key, and give out the new values of the keys that had rows in an epoch."""
        operator = self._keys.aggregate(slots=slots, id=id, **aggregates)
        return Stream(self.flow, self.input)._then(operator)

    def window(self, window: AnyWindow | CountWindow) -> WindowedStream:
        """Put the rows of a key into windows: see `Stream.window`."""
        from midstream.flow.windowed import WindowedStream

        return WindowedStream(self.flow, self.input, self.keys, window, self.partition_by)

    def deduplicate(self, id: str, *, within: Duration, slots: int = 0) -> Stream:
        """Let the first row of a key in a span of event time pass, and drop the others.

        A row is dropped if one of its key that passed lies less than `within` before or after it; what passed is
        forgotten when the watermark is `within` past it. Without an event time the clock of the epochs counts.
        Not promised: that the earliest row passes, where it arrives in a later epoch than another.

            clicks.key_by("click_id").deduplicate("once", within="1 hour")
        """
        operator = self._keys.deduplicate(within=within, slots=slots, id=id)
        return Stream(self.flow, self.input)._then(operator)

    def join(
        self,
        id: str,
        other: KeyedStream,
        *,
        how: str = "inner",
        within: Between | Window | None = None,
        ttl: Duration | None = None,
        slots: int = 0,
    ) -> Stream:
        """Put rows of this stream (left) and of another (right) together where their keys are equal.

        Gives the key columns, named as on the left, then the other columns of the left, then those of the right.
        Promised: each pair once, duplicates counted; rows without a match once the watermark proves that there is none.
        Not promised: that a late row meets a row that has been dropped already.

            orders.key_by("customer").join("paid", payments.key_by("payer"), within=ms.between("0 s", "1 hour"))

        Args:
            id: of the operator that keeps the state; `id.left`, `id.right` and `id.rows` prepare its rows.
            other: the right side, in the same flow.
            how: "inner", "left", "right", "full"; "semi" or "anti": the rows of the left, without columns of the right,
                that have a match, or have none.
            within: `ms.between(lower, upper)`: right time less left time; `ms.tumbling(size)`: both in one window.
                Both sides need `with_watermark`. Without it every pair comes out, however far apart.
            ttl: where there is no `within`: how long a row is kept, by the clock of the epochs; else for ever.
            slots: number of slots.
        """
        from midstream.flow.joins import join

        return join(self, other, id=id, how=how, within=within, ttl=ttl, slots=slots)
