"""Operators as values: the parts of a flow, an insertion or a replacement, before they are in a plan.

    ms.transform(lambda df: df.where("price > 100"))
    ms.key_by("auction").aggregate(n=ms.count())

Pure: user code is captured here, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from midstream.durations import Duration, micros
from midstream.errors import PlanError
from midstream.operators.functions.declare import KeyedFunction, state_fields
from midstream.operators.functions.deduplicate import Deduplicate
from midstream.plan import plan as p
from midstream.plan.code import capture, capture_live
from midstream.plan.column_names import clash, repeated
from midstream.plan.plan import BROADCAST, KEY, AggregateSpec
from midstream.plan.windows import AnyWindow, Session, TimeWindow


def reading(operator: Any, *inputs: str) -> Any:
    """Return an operator that reads others too, in addition to those that it reads already."""
    return msgspec.structs.replace(operator, inputs=(*inputs, *operator.inputs))


def transform(function: Callable[[Any], Any], *, per_epoch: bool = False, id: str = "") -> p.Transform:
    """A DataFrame function, in the JVM; see `Stream.transform`."""
    if not callable(function):
        raise PlanError(f"transform {id!r} needs a function of a DataFrame, not {type(function).__name__}")
    code = capture(function, what=f"the function of transform {id!r}", shipped=False)
    return p.Transform(id=id, code=code, per_epoch=per_epoch)


def map_arrow(function: Callable[[Any], Any], *, schema: str, on_error: str = "fail", id: str = "") -> p.MapArrow:
    """A function of Arrow batches, on the executors; see `Stream.map_arrow`."""
    code = capture(function, what=f"the function of map_arrow {id!r}", shipped=True)
    return p.MapArrow(id=id, code=code, schema=schema, on_error=checked_on_error(id, on_error))


def watermark(
    column: str,
    delay: Duration,
    *,
    idle_after: Duration = 0,
    ahead: Duration = 0,
    punctuation: str = "",
    id: str = "",
) -> p.Watermark:
    """The event-time column, and by how much rows may come late; see `Stream.with_watermark`."""
    return p.Watermark(
        id=id,
        column=column,
        delay=micros(delay),
        idle=micros(idle_after),
        ahead=micros(ahead),
        punctuation=punctuation,
    )


def checked_on_error(id: str, on_error: str) -> str:
    """Refuse an unknown way to treat rows that a function fails on."""
    if on_error not in ("fail", "dead_letter"):
        raise PlanError(f"operator {id!r}: on_error is 'fail' or 'dead_letter', not {on_error!r}")
    return on_error


def union(*others: str) -> p.Union:
    """The rows of the stream where it is inserted, and those of other operators or sources, of one schema."""
    if not others:
        raise PlanError("union needs at least one other operator or source, by its id")
    return p.Union(id="", inputs=others)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A stream whose rows go to every key-group of an operator."""

    input: str
    order_by: tuple[str, ...] = ()


def broadcast(input: str, *, order_by: str | Iterable[str] = ()) -> Broadcast:
    """The rows of an operator or source, by its id, for all keys of an operator that is still to be named.

    >>> broadcast("rules", order_by="changed")
    Broadcast(input='rules', order_by=('changed',))
    """
    return Broadcast(input, _columns(order_by))


def key_by(*columns: str, partition_by: str = "") -> Keys:
    """The key of an operator that is still to be named; see `Stream.key_by`."""
    if not columns:
        raise PlanError("key_by needs at least one column")
    return Keys(columns, partition_by)


def sink(sink: Any, *, id: str = "") -> p.Sink:
    """Where rows go; see `Stream.sink`."""
    if not hasattr(sink, "describe"):
        raise PlanError(f"sink {id!r} must be one of ms.sinks, not {type(sink).__name__}")
    code = capture_live(sink)
    return p.Sink(id=id, code=code, describe=sink.describe())


@dataclass(frozen=True, slots=True)
class Keys:
    """Key columns, from which a keyed operator is made."""

    columns: tuple[str, ...]
    partition_by: str = ""

    def process(
        self,
        function: KeyedFunction,
        *,
        schema: str,
        slots: int = 0,
        order_by: str | Iterable[str] = (),
        broadcast: Broadcast | None = None,
        on_error: str = "fail",
        id: str = "",
    ) -> p.Process:
        """A `KeyedFunction`; see `KeyedStream.process`."""
        if not isinstance(function, KeyedFunction):
            hint = f"{function.__name__}()" if isinstance(function, type) else "an instance of a subclass"
            raise PlanError(f"process {id!r} needs a KeyedFunction: write {hint}")
        fields = state_fields(function)
        _check_broadcast(id, function, fields, broadcast)
        return p.Process(
            id=id,
            inputs=() if broadcast is None else (broadcast.input,),  # after the stream that it will read
            code=capture(function, what=f"the function of operator {id!r}", shipped=True),
            keys=self.columns,
            partition_by=self.partition_by,
            schema=schema,
            state=tuple(field for field in fields if field.scope == KEY),
            shared=tuple(field for field in fields if field.scope != KEY),
            broadcast_order=() if broadcast is None else broadcast.order_by,
            order_by=_columns(order_by),
            slots=slots,
            on_error=checked_on_error(id, on_error),
        )

    def deduplicate(self, *, within: Duration, slots: int = 0, id: str = "") -> p.Process:
        """The first row of a key in a span of time; see `KeyedStream.deduplicate`."""
        return self.process(Deduplicate(within), schema="", slots=slots, id=id)

    def aggregate(self, *, slots: int = 0, id: str = "", **aggregates: AggregateSpec) -> p.Aggregate:
        """Declared aggregates; see `KeyedStream.aggregate`."""
        specs = named(id, self.columns, aggregates)
        return p.Aggregate(id=id, keys=self.columns, partition_by=self.partition_by, aggregates=specs, slots=slots)

    def window(self, window: AnyWindow) -> Windows:
        """Windows of `ms.tumbling`, `ms.sliding` or `ms.session`; see `KeyedStream.window`."""
        return Windows(self.columns, window, self.partition_by)


def window(window: AnyWindow) -> Windows:
    """Windows over all rows of a stream; see `Stream.window`."""
    return Windows((), window)


@dataclass(frozen=True, slots=True)
class Windows:
    """Key columns, or none, and windows, from which a window operator is made."""

    columns: tuple[str, ...]
    window: AnyWindow
    partition_by: str = ""
    punctuation: str = ""

    def with_punctuation(self, predicate: str) -> Windows:
        """Rows that end the windows of their key that they lie in; see `WindowedStream.with_punctuation`."""
        return replace(self, punctuation=predicate)

    def aggregate(
        self,
        *,
        lateness: Duration = 0,
        emit: str = "watermark",
        slots: int = 0,
        id: str = "",
        **aggregates: AggregateSpec,
    ) -> p.Window:
        """Declared aggregates per window; see `WindowedStream.aggregate`."""
        if emit not in ("watermark", "update"):
            raise PlanError(f"window {id!r}: emit is 'watermark' or 'update', not {emit!r}")
        window = self.window
        if not isinstance(window, (TimeWindow, Session)):
            what = f"window {id!r}" if id else "a window for ms.insert or ms.replace"
            raise PlanError(
                f"{what} needs ms.tumbling(...), ms.sliding(...) or ms.session(...), not {window!r}; add "
                "windows by count to a running job with ms.built or ms.branch"
            )
        return p.Window(
            id=id,
            keys=self.columns,
            partition_by=self.partition_by,
            aggregates=named(id, self.columns, aggregates),
            slots=slots,
            size=0 if isinstance(window, Session) else window.size,
            slide=0 if isinstance(window, Session) else window.slide,
            gap=window.gap if isinstance(window, Session) else 0,
            lateness=micros(lateness),
            emit=emit,
            punctuation=self.punctuation,
        )


def _columns(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_broadcast(
    id: str, function: KeyedFunction, fields: tuple[p.StateField, ...], broadcast: Broadcast | None
) -> None:
    """Refuse a function with broadcast state but no broadcast stream, and the other way round."""
    name, listens = type(function).__name__, type(function).on_broadcast is not KeyedFunction.on_broadcast
    if broadcast is None and (listens or any(field.scope == BROADCAST for field in fields)):
        raise PlanError(
            f"process {id!r}: {name} has broadcast state or on_broadcast, but no stream to fill it from; write "
            "process(..., broadcast=other.broadcast())"
        )
    if broadcast is not None and not isinstance(broadcast, Broadcast):
        raise PlanError(
            f"process {id!r}: broadcast= takes other.broadcast() or ms.broadcast(id), not a {type(broadcast).__name__}"
        )
    if broadcast is not None and not listens:
        raise PlanError(
            f"process {id!r}: {name} gets the rows of {broadcast.input!r} and needs a method on_broadcast(rows, ctx)"
        )


def named(id: str, columns: tuple[str, ...], aggregates: dict[str, AggregateSpec]) -> tuple[AggregateSpec, ...]:
    """Name aggregates; refuse what is not one, and names that are taken."""
    if not aggregates:
        raise PlanError(f"aggregate {id!r} needs at least one aggregate, such as n=ms.count()")
    for name, spec in aggregates.items():
        if not isinstance(spec, AggregateSpec):
            raise PlanError(f"aggregate {id!r}: {name}= must be ms.count(), ms.sum('price') or the like, not {spec!r}")
    specs = tuple(msgspec.structs.replace(spec, name=name) for name, spec in aggregates.items())
    if taken := clash(aggregates, columns):
        raise PlanError(f"aggregate {id!r}: {taken} is a key column; give the result another name")
    if (twice := repeated(aggregates)) is not None:
        raise PlanError(f"aggregate {id!r}: another result is called {twice!r} too, ignoring case; rename one")
    return specs
