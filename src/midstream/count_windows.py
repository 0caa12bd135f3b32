"""Windows by the number of rows: what the user writes, and the ordinary operators that it becomes.

    visits ── tens (process: the open windows of a key)

Over all rows, and where some rows end windows, there is a transform before it, `tens.rows`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from midstream.aggregates import FLOATS, INTEGERS, quote
from midstream.ddl import ddl, struct
from midstream.errors import PlanError
from midstream.functions import Context, KeyedFunction, StateDeclaration, Timer, value
from midstream.operators import named
from midstream.plan import AggregateSpec
from midstream.resolve import check_punctuation, worked_out
from midstream.state.wire import moment_of
from midstream.windows import END_OF_TIME, CountWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from midstream.flow import Stream

NUMBER = "window"
_ALL = "_all"  # the key where there is none
_ENDS = "_ends"  # whether a row ends the windows of its key
_NUMBERS = (*INTEGERS, *FLOATS)
_ORDERED = (*_NUMBERS, "string", "boolean", "date", "timestamp")
_LAST = moment_of(END_OF_TIME)


def count_windows(
    rows: Stream,
    keys: Sequence[str],
    window: CountWindow,
    partition_by: str,
    punctuation: str,
    *,
    id: str,
    slots: int,
    aggregates: dict[str, AggregateSpec],
) -> Stream:
    """Add the operators; see `WindowedStream.aggregate`."""
    flow = rows.flow
    named(id, tuple(keys), aggregates)
    resolved = worked_out(flow.session, flow.plan())
    types = {field.name: ddl(field.dataType) for field in resolved.schemas[rows.id]}
    for column in (*keys, *(spec.column for spec in aggregates.values() if spec.column)):
        if column not in types:
            raise PlanError(f"window {id!r}: there is no column {column!r}; the stream has {', '.join(types)}")
    if clash := sorted({NUMBER} & {*aggregates, *keys}):
        raise PlanError(f"window {id!r}: the name {clash[0]!r} is that of another result already; rename it")
    parts = tuple(_part(id, name, spec, types) for name, spec in aggregates.items())
    results = [(name, part.result) for name, part in zip(aggregates, parts, strict=True)]
    columns = [*((key, types[key]) for key in keys), (NUMBER, "bigint"), *results]
    schema = ", ".join(f"{quote(name)} {type}" for name, type in columns)
    check_punctuation(flow.session, f"window {id!r}", punctuation, resolved.schemas[rows.id])
    if punctuation or not keys:
        rows = rows.transform(f"{id}.rows", Marked(punctuation, not keys))
    keyed = rows.key_by(*keys, partition_by=partition_by) if keys else rows.key_by(_ALL)
    function = CountWindows(window, len(keys), parts, len(types) if punctuation else None)
    return keyed.process(id, function, schema=schema, slots=slots)


@dataclass(frozen=True)
class Marked:
    """Gives rows what they lack: whether they end the windows of their key, and a key."""

    punctuation: str
    as_one: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Add the columns."""
        ends = [f"coalesce({self.punctuation}, false) as {_ENDS}"] if self.punctuation else []
        return rows.selectExpr("*", *ends, *([f"0 as {_ALL}"] if self.as_one else []))


class Part(NamedTuple):
    """One aggregate of a window: the place of its column, and the types of what is kept and of the result.

    A tuple, so that a plan sees what has changed.
    """

    function: str
    at: int | None
    kept: str
    result: str

    def folded(self, before: Any, values: Sequence[Any], *, is_first: bool) -> Any:
        """Take the values of more rows, one at least, in their order."""
        if self.function in ("first", "last"):
            return values[-1] if self.function == "last" else values[0] if is_first else before
        there = [value for value in values if value is not None] if None in values else values
        if self.function == "count":
            return (before or 0) + len(there)
        if not there:
            return before
        if self.function == "mean":
            return [_total(before and before[0], there), (before[1] if before else 0.0) + len(there)]
        if self.function == "sum":
            return _total(before, there)
        if before is not None:
            there = [before, *there]
        best = min if self.function == "min" else max
        return best(there, key=_rank) if isinstance(there[0], float) else best(there)

    def shown(self, kept: Any) -> Any:
        """The result."""
        return kept[0] / kept[1] if self.function == "mean" and kept is not None else kept


class CountWindows(KeyedFunction):
    """Keeps the windows of a key that are not full yet.

    Promised: a row begins a window if it is in no window otherwise, or, where windows overlap, `step` rows after the
    one that began the last window; a window keeps the size that it began with, and its timeout once that runs.
    Not promised: that rows of different epochs are taken in the order of event time.
    """

    def __init__(self, window: CountWindow, keys: int, parts: tuple[Part, ...], ends: int | None = None) -> None:
        self.size, self.step, self.timeout = window.size, window.step, window.timeout
        self.keys, self.parts, self.ends = keys, parts, ends  # the place of the column that ends windows

    def declared(self) -> dict[str, StateDeclaration]:
        """The number of the next window, the rows since the last began, and the open windows, oldest first."""
        parts = [(f"part{i}", part.kept) for i, part in enumerate(self.parts)]
        kept = struct([("number", "bigint"), ("rows", "bigint"), ("size", "bigint"), ("until", "timestamp"), *parts])
        return {"following": value("bigint"), "since": value("bigint"), "open": value(f"array<{kept}>")}

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Iterable[tuple[Any, ...]]:
        """Give out windows that are full, or that a row has ended."""
        state = self.bound_state("open")
        following, since, kept = (state.read(name) for name in ("following", "since", "open"))
        following, since, open_ = following or 0, since or 0, [dict(window) for window in kept or ()]
        found: list[dict[str, Any]] = []
        for some, is_end in self._stretches(rows):
            begins = self._begins(open_, since, len(some))
            windows = [(0, window) for window in open_]  # where in the rows they begin
            windows += [(begin, self._begun(number)) for number, begin in enumerate(begins, following)]
            following, since = following + len(begins), len(some) - begins[-1] if begins else since + len(some)
            columns = [[1] * len(some) if part.at is None else [row[part.at] for row in some] for part in self.parts]
            full, open_ = [], []
            for begin, window in windows:
                self._fold(window, columns, begin, len(some))
                if is_end or window["rows"] == window["size"]:
                    full.append(window)
                else:
                    open_.append(window)
                    self._set_timer(window, some[begin:], ctx)
            for window in full:
                self._forget_timer(window["until"], open_, ctx)
            found += full
        for name, now in (("following", following), ("since", since), ("open", open_ or None)):
            state.write(name, now)
        return [self._shown(key, window) for window in found]

    def _stretches(self, rows: list[Any]) -> Iterator[tuple[list[Any], bool]]:
        """Cut rows behind each that ends windows; gives also whether there is one."""
        begin = 0
        for at, row in enumerate(rows if self.ends is not None else (), 1):
            if row[self.ends]:
                yield rows[begin:at], True
                begin = at
        if begin < len(rows):
            yield rows[begin:], False

    def _begins(self, windows: list[dict[str, Any]], since: int, rows: int) -> range:
        """Which of some rows begin a window: the first that is in none, or, where they overlap, the next in turn."""
        covered = max((window["size"] - window["rows"] for window in windows), default=0)
        if self.step < self.size:
            covered = min(covered, max(self.step - since, 0))
        return range(covered, rows, self.step)

    def _begun(self, number: int) -> dict[str, Any]:
        parts = {f"part{i}": None for i in range(len(self.parts))}
        return {"number": number, "rows": 0, "size": self.size, "until": None} | parts

    def _fold(self, window: dict[str, Any], columns: list[list[Any]], begin: int, rows: int) -> None:
        """Give a window all of the rows that it takes, from one on."""
        end = min(begin + window["size"] - window["rows"], rows)
        for i, (part, values) in enumerate(zip(self.parts, columns, strict=True)):
            window[f"part{i}"] = part.folded(window[f"part{i}"], values[begin:end], is_first=not window["rows"])
        window["rows"] += end - begin

    def on_timer(self, key: Any, timer: Timer, ctx: Context) -> Iterable[tuple[Any, ...]]:
        """Give out windows whose time is over, though they are not full."""
        state = self.bound_state("open")
        windows = state.read("open") or ()
        over = [window["until"] is not None and window["until"] <= timer.at for window in windows]
        state.write("open", [w for w, is_over in zip(windows, over, strict=True) if not is_over] or None)
        return [self._shown(key, window) for window, is_over in zip(windows, over, strict=True) if is_over]

    def _set_timer(self, window: dict[str, Any], rows: list[Any], ctx: Context) -> None:
        """Let a window come out some time after its first row, where it is to, and the row has a time."""
        if not self.timeout or window["until"] is not None:
            return
        times = (ctx.event_time(row) for row in rows) if ctx.has_event_time else (ctx.now for _ in rows)
        at = next((time for time in times if time is not None), None)
        if at is not None:
            until = window["until"] = _later(at, self.timeout)
            if ctx.has_event_time:
                ctx.set_event_timer(until)
            else:
                ctx.set_processing_timer(until)
                ctx.set_event_timer(_LAST)  # the end of the input

    def _forget_timer(self, until: datetime | None, others: list[dict[str, Any]], ctx: Context) -> None:
        if until is not None and all(window["until"] != until for window in others):
            (ctx.clear_event_timer if ctx.has_event_time else ctx.clear_processing_timer)(until)

    def _shown(self, key: Any, window: dict[str, Any]) -> tuple[Any, ...]:
        keys = () if not self.keys else (key,) if self.keys == 1 else tuple(key)
        results = (part.shown(window[f"part{i}"]) for i, part in enumerate(self.parts))
        return (*keys, window["number"], *results)


def _part(id: str, name: str, spec: AggregateSpec, types: dict[str, str]) -> Part:
    type, at = types.get(spec.column, ""), list(types).index(spec.column) if spec.column else None
    if spec.function == "count":
        return Part("count", at, "bigint", "bigint")
    if spec.function == "sum" and type in _NUMBERS:
        result = "bigint" if type in INTEGERS else "double"
        return Part("sum", at, result, result)
    if spec.function == "mean" and type in _NUMBERS:
        return Part("mean", at, "array<double>", "double")
    ordered = type in _ORDERED or type.startswith("decimal")
    if spec.function in ("first", "last") or (spec.function in ("min", "max") and ordered):
        return Part(spec.function, at, type, type)
    raise PlanError(
        f"window {id!r}: {name} = {spec.function}({spec.column!r}) of a column of type {type} cannot be kept in "
        "windows by count; they have count, first and last, sum and mean of numbers, min and max of what has an order"
    )


def _total(before: Any, values: Sequence[Any]) -> Any:
    """Add one after the other, so that it does not matter where epochs end; sum() would round otherwise."""
    return reduce(add, values) if before is None else reduce(add, values, before)


def _rank(value: Any) -> tuple[Any, ...]:
    """NaN is the greatest, as in Spark."""
    return (1,) if isinstance(value, float) and math.isnan(value) else (0, value)


def _later(at: datetime, by: int) -> datetime:
    span = timedelta(microseconds=by)
    return at + span if at < _LAST - span else _LAST
