"""What takes the place of an operator: one that is given, or the old one with another function. Pure."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import msgspec

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.functions.declare import KeyedFunction
from midstream.plan import plan as p
from midstream.plan.code import Code, capture, forget
from midstream.plan.plan import AnyOperator

_SUCH_AS = "ms.transform(...), ms.map_arrow(...), ms.key_by(...).process(...) or .aggregate(...), or ms.built(...)"


def taken_now(id: str, new: Any) -> Code | None:
    """Capture a function as it is now; `None` for what is no function, or was captured when it was made.

    A change is applied later, by another thread: what its variables have become by then does not count.
    """
    is_function = isinstance(new, KeyedFunction) or (callable(new) and not isinstance(new, type))
    return capture(new, what=f"the function that replaces {id!r}", shipped=False) if is_function else None


def successor(
    old: AnyOperator, new: Any, taken: Code | None, schema: str | None, on_error: str | None, migration: Code | None
) -> AnyOperator:
    """Return the operator that follows another in its place: as given, or the old one with another function.

    Args:
        old: the operator.
        new: what the user gives.
        taken: its code, as captured when it was given.
        schema: of its output, where that changes.
        on_error: likewise.
        migration: of the state of the old one, where it needs one.
    """
    if not old.is_replaceable:
        raise PlanError(
            f"{old.id!r} is {article(old)} and has nothing to replace; more rows come in with "
            f"ms.insert(id, ms.union(other), after={old.id!r})"
        )
    operator = following(old, new if _is_given(new) else _with_taken(with_function(old, new, schema), taken), migration)
    if on_error is not None:
        operator = _with_on_error(operator, builders.checked_on_error(old.id, on_error))
    if not operator.is_replaceable:
        raise PlanError(f"{old.id!r} cannot become {article(operator)}; use ms.insert(id, ms.union(other), after=...)")
    return msgspec.structs.replace(operator, id=old.id, inputs=(*old.inputs[:1], *operator.brought))


def following(old: AnyOperator, new: AnyOperator, migration: Code | None) -> AnyOperator:
    """Let an operator take over the state of another, and its slots, if it does not say how many it wants."""
    if migration is not None:
        new = new.migrated(old, migration)
    keyed = p.KeyedOperator
    if isinstance(new, keyed) and isinstance(old, keyed) and new.slots in (0, old.slots):
        new = msgspec.structs.replace(new, slots=old.slots, asked=old.asked)
    return new


def inserted(thing: Any, id: str) -> AnyOperator:
    """Return the operator to insert: as given, or a transform of a function."""
    if _is_given(thing):
        return thing  # type: ignore[no-any-return]
    if callable(thing) and not isinstance(thing, (type, KeyedFunction)):
        return builders.transform(thing, id=id)
    raise PlanError(f"insert {id!r}: {type(thing).__name__} is not an operator; give {_SUCH_AS}")


def article(operator: p.Operator) -> str:
    """Name the kind of an operator, with its article."""
    name = operator.kind_name
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


@singledispatch
def with_function(old: p.Operator, new: Any, schema: str | None) -> AnyOperator:
    """Return an operator with another function, or sink; a kind that can take one registers how.

    Args:
        old: the operator.
        new: what the user gives.
        schema: of its output, where that changes.
    """
    if isinstance(new, KeyedFunction):
        raise PlanError(
            f"{old.id!r} is {article(old)}; to put a KeyedFunction in its place use "
            f"ms.replace({old.id!r}, ms.key_by(...).process(function, schema=...))"
        )
    raise PlanError(
        f"{old.id!r} is {article(old)} and cannot be replaced by {type(new).__name__}; give an operator such as "
        f"{_SUCH_AS}"
    )


_REFUSE = with_function.dispatch(p.Operator)


@with_function.register
def _process(old: p.Process, new: Any, schema: str | None) -> AnyOperator:
    if not isinstance(new, KeyedFunction):
        return _REFUSE(old, new, schema)
    keys = builders.key_by(*old.keys, partition_by=old.partition_by)
    rows = None if old.broadcast is None else builders.Broadcast(old.broadcast, old.broadcast_order)
    return keys.process(
        new, schema=schema or old.schema, slots=old.slots, order_by=old.order_by, broadcast=rows,
        on_error=old.on_error, id=old.id,
    )  # fmt: skip


@with_function.register
def _transform(old: p.Transform, new: Any, schema: str | None) -> AnyOperator:
    if isinstance(new, KeyedFunction) or not callable(new):
        return _REFUSE(old, new, schema)
    return builders.transform(new, per_epoch=old.per_epoch, id=old.id)


@with_function.register
def _map_arrow(old: p.MapArrow, new: Any, schema: str | None) -> AnyOperator:
    if isinstance(new, KeyedFunction) or not callable(new):
        return _REFUSE(old, new, schema)
    return builders.map_arrow(new, schema=schema or old.schema, on_error=old.on_error, id=old.id)


@with_function.register
def _sink(old: p.Sink, new: Any, schema: str | None) -> AnyOperator:
    if isinstance(new, KeyedFunction):
        return _REFUSE(old, new, schema)
    return builders.sink(new, id=old.id)


def _with_taken(operator: AnyOperator, taken: Code | None) -> AnyOperator:
    """Let an operator have the function as it was when it was given; a kind may have made something else of it."""
    late = getattr(operator, "code", None)
    if taken is None or not isinstance(late, Code) or late.name != taken.name:
        return operator
    forget({late.key})
    return msgspec.structs.replace(operator, code=taken)


def _is_given(thing: Any) -> bool:
    return isinstance(thing, p.Operator) and thing.stands_alone


def _with_on_error(operator: AnyOperator, on_error: str) -> AnyOperator:
    if not operator.may_fail:
        raise PlanError(f"replace {operator.id!r}: on_error= is for process and map_arrow, not for {article(operator)}")
    return msgspec.structs.replace(operator, on_error=on_error)
