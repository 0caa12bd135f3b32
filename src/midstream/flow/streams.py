"""Streams between the operators of a flow: plain, with a key, in windows, and what windows emit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from midstream.durations import Duration
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.flow.builders import Broadcast
from midstream.flow.count_windows import count_windows
from midstream.flow.joins import Between, JoinInput, join
from midstream.flow.tops import Ranked, top
from midstream.operators.functions.declare import KeyedFunction
from midstream.plan import plan as p
from midstream.plan.plan import AggregateSpec, AnyOperator, Plan
from midstream.plan.windows import AnyWindow, CountWindow, TimeWindow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from midstream.sinks.contract import Sink


class Growing(Protocol):
    """What a stream needs of its flow."""

    @property
    def session(self) -> SparkSession:
        """The session of the sources."""
        ...

    def plan(self) -> Plan:
        """Return the flow in its frozen form."""
        ...

    def add(self, *operators: AnyOperator) -> None:
        """Add operators; an id that is taken is refused."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of an operator; any number of others may read it."""

    flow: Growing
    id: str

    def transform(self, id: str, function: Callable[[DataFrame], DataFrame], *, per_epoch: bool = False) -> Stream:
        """Apply a DataFrame function, in the JVM: select, filter, join with a table, UDFs.

        Promised: what runs, also in UDFs on the executors, is a copy of the function as it is now, with what it uses.
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

        With `on_error="dead_letter"` it is called for one batch at a time, and again for smaller parts of a batch
        that it fails on: single rows that it fails on are in `.errors`. It must not remember other batches.
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
            idle_after: a stream that has had no rows for this long, by the clock of the epochs, does not hold back
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
        """Merge this stream and others of its schema."""
        return self._add(p.Union(id=id, inputs=(self.id, *(other.id for other in others))))

    def key_by(self, *columns: str, partition_by: str = "") -> KeyedStream:
        """Group rows by columns: state, and the order of rows, are per key.

        `partition_by` is SQL over these columns: keys for which it is equal are kept together, in one key-group, and
        move together. `key_by("city", "street", partition_by="city")` keeps a city on one executor; by default keys
        are spread by a hash of all their columns. A few large values make a few large groups, for good.
        """
        if not columns:
            raise PlanError(f"key_by on {self.id!r} needs at least one column")
        return KeyedStream(self.flow, self.id, columns, partition_by)

    def window(self, window: AnyWindow | CountWindow) -> WindowedStream:
        """Put all rows into windows: `ms.tumbling`, `ms.sliding` or `ms.session` of event time, `ms.count_window`."""
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
        if not operator.gives_errors:
            raise PlanError(
                f"{self.id!r} has no errors to read: write on_error='dead_letter' in its process(...) or map_arrow(...)"
            )
        if any(known.id == id for known in self.flow.plan().operators):
            return Stream(self.flow, id)
        return self._add(p.Errors(id=id, inputs=(self.id,), of=self.id))

    def broadcast(self, *, order_by: str | Iterable[str] = ()) -> Broadcast:
        """Send these rows to every key-group of an operator: `process(..., broadcast=rules.broadcast())`."""
        return builders.broadcast(self.id, order_by=order_by)

    def _then(self, operator: AnyOperator) -> Stream:
        return self._add(builders.reading(operator, self.id))

    def _add(self, *operators: AnyOperator) -> Stream:
        self.flow.add(*operators)
        return Stream(self.flow, operators[-1].id)


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream with a key."""

    flow: Growing
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

        With `on_error="dead_letter"` a call of `process` or `on_timer` that raises, or yields what does not fit, leaves
        no trace: state, timers and output are as before it, and the rows of the call, or the timer, are in `.errors`.
        """
        operator = self._keys.process(
            function, schema=schema, slots=slots, order_by=order_by, broadcast=broadcast, on_error=on_error, id=id
        )
        return Stream(self.flow, self.input)._then(operator)

    def aggregate(self, id: str, *, slots: int = 0, **aggregates: AggregateSpec) -> Stream:
        """Keep declared aggregates per key, and emit the new values of the keys that had rows in an epoch."""
        operator = self._keys.aggregate(slots=slots, id=id, **aggregates)
        return Stream(self.flow, self.input)._then(operator)

    def window(self, window: AnyWindow | CountWindow) -> WindowedStream:
        """Put the rows of a key into windows: see `Stream.window`."""
        return WindowedStream(self.flow, self.input, self.keys, window, self.partition_by)

    def deduplicate(self, id: str, *, within: Duration, slots: int = 0) -> Stream:
        """Let the first row of a key in a span of event time pass, and drop the others.

        A row is dropped if another of its key that passed lies less than `within` before or after it; a row that passed
        is forgotten when the watermark is `within` past it. Without an event time the clock of the epochs counts.
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
        within: Between | TimeWindow | None = None,
        ttl: Duration | None = None,
        slots: int = 0,
    ) -> Stream:
        """Pair rows of this stream (left) and of another (right) whose keys are equal.

        Emits the key columns, named as on the left, then the other columns of the left, then those of the right.
        Promised: each pair once, duplicates counted; rows without a match once the watermark proves that there is none.
        Not promised: that a late row meets a row that has been dropped already.

            orders.key_by("customer").join("paid", payments.key_by("payer"), within=ms.between("0 s", "1 hour"))

        Args:
            id: of the operator that keeps the state; `id.left`, `id.right` and `id.rows` prepare its rows.
            other: the right side, in the same flow.
            how: "inner", "left", "right", "full"; "semi" or "anti": the rows of the left, without columns of the right,
                that have a match, or have none.
            within: `ms.between(lower, upper)`: right time less left time; `ms.tumbling(size)`: both in one window.
                Both sides need `with_watermark`. Without it every pair is emitted, however far apart.
            ttl: where there is no `within`: how long a row is kept, by the clock of the epochs; else for ever.
            slots: number of slots.
        """
        if not isinstance(other, KeyedStream):
            raise PlanError(f"join {id!r} needs a keyed stream to join with: write other.key_by(...)")
        if other.flow is not self.flow:
            raise PlanError(f"join {id!r}: both sides must be streams of one flow; {other.input!r} is of another")
        sides = JoinInput(self.input, self.keys), JoinInput(other.input, other.keys)
        options: dict[str, Any] = {"how": how, "within": within, "ttl": ttl, "slots": slots}
        made = join(self.flow.session, self.flow.plan(), *sides, partition_by=self.partition_by, id=id, **options)
        return Stream(self.flow, self.input)._add(*made)


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """A stream in windows, by a key or over all rows."""

    flow: Growing
    input: str
    keys: tuple[str, ...]
    window: AnyWindow | CountWindow
    partition_by: str = ""
    punctuation: str = ""

    def with_punctuation(self, predicate: str) -> WindowedStream:
        """Let rows say that no more of their key and window follow: `with_punctuation("kind = 'closed'")`.

        A row for which the SQL holds is counted like any other, and the windows of its key that it lies in are emitted
        in its epoch, and are gone; of windows by count all that are open. Those of other keys wait as usual.

        Not promised: anything about a row that follows nevertheless; it begins the window again, emitted once more.
        """
        return replace(self, punctuation=predicate)

    def aggregate(
        self, id: str, *, lateness: Duration = 0, emit: str = "watermark", slots: int = 0, **aggregates: AggregateSpec
    ) -> Windowed:
        """Keep declared aggregates per window: the key, `window_start`, `window_end`, and the results.

        Promised: a window holds `[start, start + size)`, starts at a multiple of its slide, and is emitted once the
        watermark has reached its end. A row that comes later is in `.late`, and counted in the progress report.
        A session starts with its first row and ends a gap after its last.
        Windows by count emit the key, `window`, their number from 0, and the results; no row is late for them.
        Not promised: an order of windows that close in one epoch.

        Args:
            id: of the operator.
            lateness: how long after its end a window still takes rows; each epoch that brings some emits it again.
            emit: "watermark", or "update": emit windows in every epoch that changes them, not when they close.
            slots: how many tasks share the keys.
            aggregates: such as `n=ms.count()`.
        """
        if isinstance(self.window, CountWindow):
            if lateness or emit != "watermark":
                raise PlanError(
                    f"window {id!r}: windows by count have neither lateness nor emit; they are emitted when full"
                )
            made = count_windows(
                self.flow.session, self.flow.plan(), self.input, self.keys, self.window, self.partition_by,
                self.punctuation, id=id, slots=slots, aggregates=aggregates,
            )  # fmt: skip
            return self._windowed(id, made)
        window = builders.Windows(self.keys, self.window, self.partition_by, self.punctuation).aggregate(
            lateness=lateness, emit=emit, slots=slots, id=id, **aggregates
        )
        return self._windowed(id, [builders.reading(window, self.input)])

    def top(self, id: str, n: int = 1, *, by: str, ties: bool = True, slots: int = 0) -> Windowed:
        """Emit the rows with the greatest `by` of each window, when it closes: all columns, and the bounds.

        With ties, more than `n` rows come where several are equal; without, those whose other columns come first.
        A row that comes too late is in `.late`, and counted in the progress report.
        """
        rows = Ranked(self.input, self.keys, self.window, self.partition_by, self.punctuation)
        made = top(self.flow.session, self.flow.plan(), rows, id=id, n=n, by=by, ties=ties, slots=slots)
        return self._windowed(id, made)

    def _windowed(self, id: str, made: Sequence[AnyOperator]) -> Windowed:
        self.flow.add(*made)
        return Windowed(self.flow, id, self.input)


@dataclass(frozen=True, slots=True)
class Windowed(Stream):
    """What windows emit."""

    input: str

    @property
    def late(self) -> Stream:
        """The rows that came too late, are too far ahead or have no event time, with the `late_reason` as a column."""
        id = f"{self.id}.late"
        known = [operator.id for operator in self.flow.plan().operators]
        if id in known:
            return Stream(self.flow, id)
        late = p.Late(id=id, inputs=(self.input,), of=self.id)
        p.windows_late_for(self.flow.plan(), late)
        return self._add(late)

    def top(self, id: str, n: int = 1, *, by: str, ties: bool = True, slots: int = 0) -> Stream:
        """Emit, of all keys, the windows with the greatest `by`: `counts.top("hottest", 3, by="n")`.

        With ties, more than `n` come where several are equal; without, those whose other columns come first.
        """
        made = top(self.flow.session, self.flow.plan(), Ranked(self.id), id=id, n=n, by=by, ties=ties, slots=slots)
        return self._add(*made)
