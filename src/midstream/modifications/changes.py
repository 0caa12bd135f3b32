"""Changes of a running plan, as values: `job.modify` takes any number of them as one atomic step.

Each change turns a plan into another one, or refuses, saying why. Pure: nothing runs and nothing is looked up outside
the plan; schemas are checked afterwards, over the whole new plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.modifications.composites import Built
from midstream.operators.functions.declare import KeyedFunction
from midstream.placement.request import Wish
from midstream.plan import plan as p
from midstream.plan.code import Code, capture
from midstream.plan.compatibility import difference
from midstream.plan.plan import AnyOperator, Plan
from midstream.plan.wiring import check

_OPERATORS = (p.Transform, p.MapArrow, p.Watermark, p.Union, p.Process, p.Aggregate, p.Late, p.Sink)


@dataclass(frozen=True, slots=True)
class Change:
    """One step from a plan to another."""

    what: str  # shown to people
    apply: Callable[[Plan], Plan]
    wish: Wish | None = None  # what it wants of places

    def __str__(self) -> str:
        return self.what


def changed(plan: Plan, changes: Sequence[Change]) -> Plan:
    """Apply changes in their order, and check the wiring of the outcome."""
    for change in changes:
        plan = change.apply(plan)
    check(plan)
    return plan


def versioned(plan: Plan, version: int) -> Plan:
    """Return a plan with its version."""
    return msgspec.structs.replace(plan, version=version)


def replace(
    id: str,
    new: Any,
    *,
    schema: str | None = None,
    migrate: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    on_error: str | None = None,
) -> Change:
    """Replace the function of an operator, or a whole operator or sink; its state stays.

    Windows of another size or slide are windows to come: those that are open keep their own.

    Args:
        id: the operator.
        new: a function, a `KeyedFunction`, a sink, or an operator such as `ms.key_by("user").aggregate(...)`, or
            `ms.built(lambda stream: ...)` for joins, tops and windows by count.
        schema: the new output schema of a `map_arrow` or `process`, where it changes.
        migrate: where a `KeyedFunction` declares other state: takes the old state of a key as a dictionary, by name,
            and gives the new one. Called once per key, when the key is next met.
        on_error: "fail" or "dead_letter", of a `map_arrow` or `process`, where it changes.
    """
    migration = None if migrate is None else capture(migrate, what=f"the migration of {id!r}", shipped=True)

    def apply(plan: Plan) -> Plan:
        old = plan[id]
        if isinstance(new, Built):
            if schema is not None or on_error is not None:
                raise PlanError(
                    f"replace {id!r}: schema= and on_error= are for functions; what ms.built makes has its own"
                )
            made = new.instead(plan, id)
            return _with(made, _following(old, made[id], migration))
        if isinstance(old, (p.Source, p.Union)):
            raise PlanError(
                f"{id!r} is {kind_of(old)} and has nothing to replace; more rows come in with "
                f"ms.insert(id, ms.union(other), after={id!r})"
            )
        operator = _following(old, _successor(old, new, schema), migration)
        if on_error is not None:
            operator = _with_on_error(operator, builders.checked_on_error(id, on_error))
        if isinstance(operator, p.Union):
            raise PlanError(f"{id!r} cannot become a union; say ms.insert(id, ms.union(other), after=...)")
        brought = operator.inputs if isinstance(operator, p.Process) else ()  # what its groups are told
        return _with(plan, msgspec.structs.replace(operator, id=id, inputs=(*old.inputs[:1], *brought)))

    return Change(f"replace {id!r}", apply)


def insert(
    id: str,
    operator: Any,
    *,
    after: str | None = None,
    before: str | None = None,
    between: tuple[str, str] | None = None,
) -> Change:
    """Insert an operator: after another (all that read that one read the new one), before one, or between two.

    `operator` is `ms.transform(...)`, `ms.map_arrow(...)`, `ms.key_by(...).process(...)` or `.aggregate(...)`,
    `ms.watermark(...)`, `ms.union("other")`, or `ms.built(lambda stream: ...)` for joins, tops and windows by count; a
    plain function stands for `ms.transform(function)`.
    """
    if sum(place is not None for place in (after, before, between)) != 1:
        raise PlanError(f"insert {id!r}: say one of after=, before=, between=(a, b)")
    new = operator if isinstance(operator, Built) else _operator(operator, id)
    if isinstance(new, p.Sink):
        raise PlanError(f"insert {id!r}: a sink is added with ms.add_sink({id!r}, sink, after=...)")

    def apply(plan: Plan) -> Plan:
        refuse_known(plan, id)
        if after is not None:
            upstream = after
            readers = {reader.id for reader in plan.consumers(after) if not isinstance(reader, p.Errors)}
        elif before is not None:
            inputs = plan[before].inputs
            if len(inputs) != 1:
                raise PlanError(
                    f"insert {id!r}: {before!r} reads {_names(inputs) or 'nothing'}; "
                    f"say between=(a, {before!r}) for one of its inputs"
                )
            upstream, readers = inputs[0], {before}
        else:
            assert between is not None
            upstream, readers = between[0], {between[1]}
            if upstream not in plan[between[1]].inputs:
                raise PlanError(f"insert {id!r}: {between[1]!r} does not read {upstream!r}")
        if isinstance(new, Built):
            grown = new.over(plan, upstream, id)
        else:
            inputs = (upstream, *new.inputs)  # a union brings the others
            grown = _after(plan, upstream, msgspec.structs.replace(new, id=id, inputs=inputs))
        rewired = _rewired(grown, readers, upstream, id)
        return msgspec.structs.replace(rewired, operators=p.in_order(rewired.operators))

    return Change(f"insert {id!r}", apply)


def remove(id: str) -> Change:
    """Remove an operator or a sink: what read it reads its input. Its state is kept until `job.forget(id)`."""

    def apply(plan: Plan) -> Plan:
        old = plan[id]
        readers = {reader.id for reader in plan.consumers(id)}
        if isinstance(old, p.Source):
            raise PlanError(f"{id!r} is a source; use ms.remove_source({id!r})")
        if readers and len(old.inputs) != 1 and not isinstance(old, p.Process):
            raise PlanError(
                f"{id!r} reads {_names(old.inputs)} and is read by {_names(sorted(readers))}: removing it would leave "
                "them without one input. Remove or replace them in the same step"
            )
        rest = tuple(operator for operator in plan.operators if operator.id != id)
        return _rewired(msgspec.structs.replace(plan, operators=rest), readers, id, *old.inputs[:1])

    return Change(f"remove {id!r}", apply)


def add_sink(id: str, sink: Any, *, after: str) -> Change:
    """Write the rows of an operator also somewhere else, from the cut on."""
    new = builders.sink(sink, id=id)

    def apply(plan: Plan) -> Plan:
        refuse_known(plan, id)
        return _after(plan, after, msgspec.structs.replace(new, inputs=(after,)))

    return Change(f"add sink {id!r}", apply)


def remove_sink(id: str) -> Change:
    """Stop writing to a sink; what it has stays."""

    def apply(plan: Plan) -> Plan:
        if not isinstance(plan[id], p.Sink):
            raise PlanError(f"{id!r} is {kind_of(plan[id])}, not a sink; use ms.remove({id!r})")
        return remove(id).apply(plan)

    return Change(f"remove sink {id!r}", apply)


def remove_source(id: str) -> Change:
    """Stop reading a source. Unions go on without it; whatever else reads it must be removed in the same step.

    Its place in the stream is kept: added again under its id it goes on there, without the rows that came meanwhile.
    `job.forget(id)` lets go of that too.
    """

    def apply(plan: Plan) -> Plan:
        if not isinstance(plan[id], p.Source):
            raise PlanError(f"{id!r} is {kind_of(plan[id])}, not a source; use ms.remove({id!r})")
        unions = {o.id for o in plan.consumers(id) if isinstance(o, p.Union) and o.inputs != (id,)}
        readers = [reader.id for reader in plan.consumers(id) if reader.id not in unions]
        if readers:
            raise PlanError(f"source {id!r} is read by {_names(readers)}; remove them before it, in the same step")
        rest = tuple(operator for operator in plan.operators if operator.id != id)
        return _rewired(msgspec.structs.replace(plan, operators=rest), unions, id)

    return Change(f"remove source {id!r}", apply)


def become(new: Plan) -> Change:
    """Become another plan: the difference is worked out by operator id."""

    def apply(plan: Plan) -> Plan:
        touched = {*difference(plan, new).added, *difference(plan, new).changed}
        kept = tuple(operator if operator.id in touched else plan[operator.id] for operator in new.operators)
        return msgspec.structs.replace(plan, name=new.name, operators=kept)

    return Change(f"become the flow {new.name!r}", apply)


def undone(before: Plan, after: Plan) -> Change:
    """Take back what led from one plan to another, in a plan that may have been changed elsewhere since."""

    def apply(plan: Plan) -> Plan:
        now = {operator.id: operator for operator in plan.operators}
        was, made = ({o.id: o for o in each.operators} for each in (before, after))  # changed below
        touched = [id for id in {**was, **made} if was.get(id) != made.get(id)]
        for id in touched:
            _rescale(was, made, now, id)
        changed = [id for id in touched if now.get(id) != made.get(id)]
        if touched and all(now.get(id) == was.get(id) for id in touched):
            raise PlanError("this modification is undone already")
        if changed:
            raise PlanError(f"{changed[0]!r} has been changed again since; undo that modification first")
        kept = [operator for operator in plan.operators if operator.id not in touched or operator.id in was]
        merged = [was[operator.id] if operator.id in touched else operator for operator in kept]
        merged += [was[id] for id in touched if id in was and id not in now]
        return msgspec.structs.replace(plan, operators=p.in_order(merged), tuning=_untuned(plan, before, after))

    return Change("undo", apply)


def _rescale(was: dict[str, Any], made: dict[str, Any], now: dict[str, Any], id: str) -> None:
    """Set an operator of earlier plans to the slots that it has now, if it was rescaled since: that is no new code."""
    slots, before, after = (getattr(plan.get(id), "slots", None) for plan in (now, was, made))
    if slots is not None and after is not None and before in (None, after):
        for plan in (was, made):
            if hasattr(plan.get(id), "slots"):
                plan[id] = msgspec.structs.replace(plan[id], slots=slots, asked=now[id].asked)


def _untuned(plan: Plan, before: Plan, after: Plan) -> p.Tuning:
    taken_back = {}
    for name in p.Tuning.__struct_fields__:
        now, was, made = (getattr(each.tuning, name) for each in (plan, before, after))
        if was != made:
            if now != made:
                raise PlanError(f"{name} has been tuned again since; undo that modification first")
            taken_back[name] = was
    return msgspec.structs.replace(plan.tuning, **taken_back)


def _successor(old: AnyOperator, new: Any, schema: str | None) -> AnyOperator:
    """The operator that follows `old`: as given, or `old` with another function."""
    if isinstance(new, _OPERATORS):
        return new
    if isinstance(new, KeyedFunction):
        if not isinstance(old, p.Process):
            raise PlanError(
                f"{old.id!r} is {kind_of(old)}; to put a KeyedFunction in its place say "
                f"ms.replace({old.id!r}, ms.key_by(...).process(function, schema=...))"
            )
        keys = builders.key_by(*old.keys, partition_by=old.partition_by)
        told = None if old.told is None else builders.Broadcast(old.told, old.told_by)
        return keys.process(
            new, schema=schema or old.schema, slots=old.slots, order_by=old.order_by, broadcast=told,
            on_error=old.on_error, id=old.id,
        )  # fmt: skip
    if isinstance(old, p.Sink):
        return builders.sink(new, id=old.id)
    if isinstance(old, p.Transform) and callable(new):
        return builders.transform(new, per_epoch=old.per_epoch, id=old.id)
    if isinstance(old, p.MapArrow) and callable(new):
        return builders.map_arrow(new, schema=schema or old.schema, on_error=old.on_error, id=old.id)
    raise PlanError(
        f"{old.id!r} is {kind_of(old)} and cannot be replaced by {type(new).__name__}; give an operator such as "
        "ms.transform(...), ms.map_arrow(...), ms.key_by(...).process(...) or .aggregate(...), or ms.built(...)"
    )


def _following(old: AnyOperator, new: AnyOperator, migration: Code | None) -> AnyOperator:
    """Let an operator take over the state of another, and its slots, if it does not say how many it wants."""
    if migration is not None:
        new = _migrated(old, new, migration)
    keyed = p.KeyedOperator
    if isinstance(new, keyed) and isinstance(old, keyed) and new.slots in (0, old.slots):
        new = msgspec.structs.replace(new, slots=old.slots, asked=old.asked)
    return new


def _migrated(old: AnyOperator, new: AnyOperator, code: Code) -> p.Process:
    if not isinstance(old, p.Process) or not isinstance(new, p.Process):
        raise PlanError(f"{old.id!r}: only the state of a KeyedFunction can be migrated, to that of another one")
    before = p.Migration(code=code, state=old.state, base=old.base, before=old.migration)
    return msgspec.structs.replace(new, migration=before)


def _with_on_error(operator: AnyOperator, on_error: str) -> AnyOperator:
    if not isinstance(operator, (p.Process, p.MapArrow)):
        raise PlanError(f"replace {operator.id!r}: on_error= is for process and map_arrow, not for {kind_of(operator)}")
    return msgspec.structs.replace(operator, on_error=on_error)


def _operator(thing: Any, id: str) -> AnyOperator:
    if isinstance(thing, _OPERATORS):
        return thing
    if callable(thing) and not isinstance(thing, (type, KeyedFunction)):
        return builders.transform(thing, id=id)
    raise PlanError(
        f"insert {id!r}: {type(thing).__name__} is not an operator; give ms.transform(...), ms.map_arrow(...), "
        "ms.key_by(...).process(...) or .aggregate(...), or ms.built(...)"
    )


def refuse_known(plan: Plan, id: str) -> None:
    """Refuse an id that is taken."""
    if any(operator.id == id for operator in plan.operators):
        raise PlanError(f"the id {id!r} is used already in flow {plan.name!r}; give the new operator another one")


def _with(plan: Plan, new: AnyOperator) -> Plan:
    kept = tuple(new if operator.id == new.id else operator for operator in plan.operators)
    return msgspec.structs.replace(plan, operators=kept)


def _after(plan: Plan, upstream: str, new: AnyOperator) -> Plan:
    at = plan.operators.index(plan[upstream]) + 1
    return msgspec.structs.replace(plan, operators=(*plan.operators[:at], new, *plan.operators[at:]))


def _rewired(plan: Plan, readers: set[str], old: str, new: str = "") -> Plan:
    """Let some operators read another one instead of `old`, or nothing instead."""
    found = []
    for operator in plan.operators:
        if operator.id in readers:
            inputs = tuple(new if id == old else id for id in operator.inputs if id != old or new)
            operator = msgspec.structs.replace(operator, inputs=inputs)
        found.append(operator)
    return msgspec.structs.replace(plan, operators=tuple(found))


def _names(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids))


def kind_of(operator: AnyOperator) -> str:
    """Name the kind of an operator, with its article."""
    name = type(operator).__name__.lower()
    return f"an {name}" if name[0] in "aeio" else f"a {name}"
