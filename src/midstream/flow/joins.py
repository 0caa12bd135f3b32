"""Joins of two keyed streams: what the user writes, and the ordinary operators that it becomes.

    orders ─── j.left (transform) ───┐
                                     ├── j.rows (union) ── j (process, with the state of both sides)
    payments ─ j.right (transform) ──┘

Each transform gives the rows of its side one common form, see `join_form`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from midstream.durations import Duration, micros, signed_micros
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.joins.common_form import OWN, SideForm
from midstream.operators.joins.rules import ALONE, HALVES, KINDS, LEFT, RIGHT, BoundedJoin, Join, UnboundedJoin
from midstream.operators.resolve import worked_out
from midstream.operators.schemas import arrow_schema
from midstream.plan.column_names import clash, repeated
from midstream.plan.plan import AnyOperator, Plan, Union
from midstream.plan.sql import quote
from midstream.plan.windows import TimeWindow
from midstream.spark.types import ddl, struct
from midstream.state.values import Wire

_STAND_IN = ("_row", "boolean")  # what is kept of a row that has only its key


@dataclass(frozen=True, slots=True)
class Between:
    """How far the event time of the right row may lie from that of the left: both bounds are included."""

    lower: int  # of right time - left time, in microseconds
    upper: int


def between(lower: Duration, upper: Duration) -> Between:
    """Bound an interval join: `lower <= right time - left time <= upper`; a bound may be negative.

    >>> between("-5 minutes", "10 minutes")
    Between(lower=-300000000, upper=600000000)
    """
    bounds = Between(signed_micros(lower), signed_micros(upper))
    if bounds.lower > bounds.upper:
        raise PlanError(f"between({lower!r}, {upper!r}) is empty: the lower bound comes first")
    return bounds


@dataclass(frozen=True, slots=True)
class JoinInput:
    """A keyed stream that is joined."""

    input: str
    keys: tuple[str, ...]


def join(
    session: SparkSession,
    plan: Plan,
    left: JoinInput,
    right: JoinInput,
    *,
    partition_by: str,
    id: str,
    how: str,
    within: Between | TimeWindow | None,
    ttl: Duration | None,
    slots: int,
) -> list[AnyOperator]:
    """Return the operators of a join; see `KeyedStream.join`."""
    _check(id, plan, how, within, ttl)
    sides = _resolved(id, session, plan, left), _resolved(id, session, plan, right)
    if how in HALVES:
        sides = sides[0], replace(sides[1], others=())
    _check_columns(id, *sides)
    if within is not None:
        for side, what in zip(sides, (LEFT, RIGHT), strict=True):
            if side.time is None:
                raise PlanError(
                    f"join {id!r} is bounded in event time, and its {what} side {side.input!r} has none: write "
                    "with_watermark(column, delay) on it, and keep that column"
                )
    first, second = (
        builders.reading(
            builders.transform(_form(what, sides, how, timed=within is not None), id=f"{id}.{what}"), side.input
        )
        for side, what in zip(sides, (LEFT, RIGHT), strict=True)
    )
    rows = Union(id=f"{id}.rows", inputs=(first.id, second.id))
    schema = ", ".join(f"{quote(name)} {type}" for name, type in _output(*sides))
    order = () if within is None else ("_time",)
    keyed = builders.key_by(*left.keys, partition_by=partition_by)
    joined = keyed.process(_function(sides, how, within, ttl), schema=schema, slots=slots, order_by=order, id=id)
    return [first, second, rows, builders.reading(joined, rows.id)]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join, with what is known of it: columns and their DDL types."""

    input: str
    keys: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    time: str | None  # the event-time column

    @property
    def type(self) -> str:
        """The type of what is kept of a row."""
        return struct(self.others or (_STAND_IN,))


def _form(what: str, sides: tuple[_Side, _Side], how: str, *, timed: bool) -> SideForm:
    """Describe how the rows of one side are prepared."""
    side = sides[0] if what == LEFT else sides[1]
    return SideForm(
        side=what,
        keys=tuple((mine, name) for (mine, _), (name, _) in zip(side.keys, sides[0].keys, strict=True)),
        time=side.time if timed else None,
        columns=tuple(name for name, _ in side.others),
        types=(sides[0].type, sides[1].type),
        needs_key=how not in ALONE[what],
    )


def _check(id: str, plan: Plan, how: str, within: Between | TimeWindow | None, ttl: Duration | None) -> None:
    if how not in KINDS:
        raise PlanError(f"join {id!r}: how is one of {', '.join(KINDS)}, not {how!r}")
    fits = isinstance(within, Between) or (isinstance(within, TimeWindow) and within.is_tumbling)
    if within is not None and not fits:
        raise PlanError(f"join {id!r}: within is ms.between(lower, upper) or ms.tumbling(size), not {within!r}")
    if within is None and how != "inner":
        raise PlanError(
            f"join {id!r}: without within= nothing proves that a row has no match, so only how='inner' is possible; "
            f"bound the {how} join with ms.between(...) or ms.tumbling(...)"
        )
    if within is not None and ttl is not None:
        raise PlanError(f"join {id!r}: ttl= is for joins without within=; a bounded one forgets by the watermark")
    if ttl is not None and not micros(ttl):
        raise PlanError(f"join {id!r}: ttl= must be longer than 0")
    if any(operator.id == id for operator in plan.operators):
        raise PlanError(f"the id {id!r} is used twice in flow {plan.name!r}; give each operator its own")


def _resolved(id: str, session: SparkSession, plan: Plan, stream: JoinInput) -> _Side:
    """Find the columns of a side by running all above it on empty frames, as `start` will."""
    schema, time = _schema(session, plan, stream.input)
    known = {field.name: ddl(field.dataType) for field in schema}
    for key in stream.keys:
        if key not in known:
            raise PlanError(f"join {id!r}: {stream.input!r} has no column {key!r}; it has {', '.join(known)}")
    for field in arrow_schema(schema):
        Wire(field.type, f"column {field.name!r}")  # refuses what state cannot hold
    others = tuple((name, type) for name, type in known.items() if name not in stream.keys)
    return _Side(stream.input, tuple((key, known[key]) for key in stream.keys), others, time)


def _schema(session: SparkSession, plan: Plan, input: str) -> tuple[StructType, str | None]:
    above = {operator.id for operator in plan.upstream(input)}
    part = msgspec.structs.replace(plan, operators=tuple(o for o in plan.operators if o.id in above))
    resolved = worked_out(session, part)
    return resolved.schemas[input], resolved.event_times[input]


def _check_columns(id: str, left: _Side, right: _Side) -> None:
    if [type for _, type in left.keys] != [type for _, type in right.keys]:
        raise PlanError(
            f"join {id!r}: the keys differ: {_shown(left.keys)} on the left, {_shown(right.keys)} on the right; "
            "cast one of them in a transform"
        )
    if name := clash((name for name, _ in left.keys), OWN):
        raise PlanError(f"join {id!r}: the column name {name!r} is taken by Midstream; rename the key")
    if (name := repeated(name for name, _ in _output(left, right))) is not None:
        raise PlanError(
            f"join {id!r} would emit two columns named {name!r}: rename one of them with a transform, before "
            "with_watermark if it is the event time"
        )


def _function(sides: tuple[_Side, _Side], how: str, within: Between | TimeWindow | None, ttl: Duration | None) -> Join:
    widths = len(sides[0].others), len(sides[1].others)
    types = sides[0].type, sides[1].type
    if within is None:
        return UnboundedJoin(widths=widths, types=types, ttl=0 if ttl is None else micros(ttl))
    if isinstance(within, TimeWindow):
        return BoundedJoin(widths=widths, types=types, how=how, size=within.size)
    return BoundedJoin(widths=widths, types=types, how=how, lower=within.lower, upper=within.upper)


def _output(left: _Side, right: _Side) -> tuple[tuple[str, str], ...]:
    return (*left.keys, *left.others, *right.others)


def _shown(columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {type}" for name, type in columns)
