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
from midstream.modifications.successors import article, following, inserted, successor, taken_now
from midstream.placement.request import Wish
from midstream.plan import plan as p
from midstream.plan.code import capture
from midstream.plan.compatibility import difference
from midstream.plan.plan import AnyOperator, Plan
from midstream.plan.wiring import check


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

    Windows of another size or slide are windows to come: those that are open keep their own. A function is taken as it
    is now: what becomes of its variables or its module later does not count.

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
    taken = taken_now(id, new)

    def apply(plan: Plan) -> Plan:
        old = plan[id]
        if isinstance(new, Built):
            if schema is not None or on_error is not None:
                raise PlanError(
                    f"replace {id!r}: schema= and on_error= are for functions; what ms.built makes has its own"
                )
            made = new.instead(plan, id)
            return _with(made, following(old, made[id], migration))
        return _with(plan, successor(old, new, taken, schema, on_error, migration))

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
        raise PlanError(f"insert {id!r}: give one of after=, before=, between=(a, b)")
    new = operator if isinstance(operator, Built) else inserted(operator, id)
    if isinstance(new, p.Sink):
        raise PlanError(f"insert {id!r}: a sink is added with ms.add_sink({id!r}, sink, after=...)")

    def apply(plan: Plan) -> Plan:
        refuse_known(plan, id)
        upstream, readers = _place(plan, id, after, before, between)
        if isinstance(new, Built):
            grown = new.over(plan, upstream, id)
        else:
            inputs = (upstream, *new.brought)
            grown = _after(plan, upstream, msgspec.structs.replace(new, id=id, inputs=inputs))
        rewired = _rewired(grown, readers, upstream, id)
        return msgspec.structs.replace(rewired, operators=p.in_order(rewired.operators))

    return Change(f"insert {id!r}", apply)


def _place(
    plan: Plan, id: str, after: str | None, before: str | None, between: tuple[str, str] | None
) -> tuple[str, set[str]]:
    """What an operator that is inserted reads, and who then reads it; one of the three places is given."""
    if after is not None:
        return after, {reader.id for reader in plan.consumers(after) if not reader.belongs_to_input}
    if before is not None:
        inputs = plan[before].inputs
        if len(inputs) != 1:
            raise PlanError(
                f"insert {id!r}: {before!r} reads {_names(inputs) or 'nothing'}; "
                f"give between=(a, {before!r}) for one of its inputs"
            )
        return inputs[0], {before}
    assert between is not None
    upstream, reader = between
    if upstream not in plan[reader].inputs:
        raise PlanError(f"insert {id!r}: {reader!r} does not read {upstream!r}")
    return upstream, {reader}


def remove(id: str) -> Change:
    """Remove an operator or a sink: what read it reads its input. Its state is kept until `job.forget(id)`."""

    def apply(plan: Plan) -> Plan:
        old = plan[id]
        readers = {reader.id for reader in plan.consumers(id)}
        if isinstance(old, p.Source):
            raise PlanError(f"{id!r} is a source; use ms.remove_source({id!r})")
        if readers and len(old.streams) != 1:
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
            raise PlanError(f"{id!r} is {article(plan[id])}, not a sink; use ms.remove({id!r})")
        return remove(id).apply(plan)

    return Change(f"remove sink {id!r}", apply)


def remove_source(id: str) -> Change:
    """Stop reading a source. Unions go on without it; whatever else reads it must be removed in the same step.

    Its place in the stream is kept: added again under its id it goes on there, without the rows that came meanwhile.
    `job.forget(id)` lets go of that too.
    """

    def apply(plan: Plan) -> Plan:
        if not isinstance(plan[id], p.Source):
            raise PlanError(f"{id!r} is {article(plan[id])}, not a source; use ms.remove({id!r})")
        unions = {o.id for o in plan.consumers(id) if o.is_optional_reader and o.inputs != (id,)}
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
