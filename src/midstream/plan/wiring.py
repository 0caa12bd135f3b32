"""The wiring of a plan: whether operators fit together, by ids and kinds alone. Pure: schemas are checked elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from midstream.errors import PlanError
from midstream.plan.plan import (
    AnyOperator,
    Errors,
    KeyedOperator,
    Late,
    Operator,
    Plan,
    Process,
    Sink,
    Source,
    Spread,
    Watermark,
    Window,
    windows_late_for,
)


def check(plan: Plan) -> None:
    """Refuse a plan whose ids or wiring are wrong."""
    seen: set[str] = set()
    for operator in plan.operators:
        if operator.id in seen:
            raise PlanError(
                f"the id {operator.id!r} is used twice in flow {plan.name!r}; ids own state, so each must be unique"
            )
        if not operator.id or not all(c.isalnum() or c in "_-." for c in operator.id) or operator.id.startswith("."):
            raise PlanError(f"{operator.id!r} cannot be an id: use letters, digits, '_', '-' and '.'")
        for wanted in operator.inputs:
            if wanted not in seen:
                raise PlanError(f"operator {operator.id!r} reads {wanted!r}, which is not defined before it")
        seen.add(operator.id)
    for kind, refuse in _RULES:
        for operator in plan.of(kind):
            refuse(plan, operator)
    if not plan.of(Source):
        raise PlanError(f"flow {plan.name!r} has no source; add one with flow.source(id, streaming_dataframe)")
    if not plan.of(Sink) and not plan.of(KeyedOperator):
        raise PlanError(f"flow {plan.name!r} has neither a sink nor a keyed operator: it would compute nothing")


def _refuse_slots(plan: Plan, operator: KeyedOperator) -> None:
    if not isinstance(operator.slots, int) or operator.slots < 0:
        raise PlanError(
            f"operator {operator.id!r}: slots= is a number of tasks, or 0 for one per core, not {operator.slots!r}"
        )


def _refuse_windows_of_nobody(plan: Plan, spread: Spread) -> None:
    if not any(spread.of == keyed.id for keyed in plan.of(Process)):
        raise PlanError(
            f"{spread.id!r} has the windows of {spread.of!r}, which is not in this plan: remove both together"
        )


def _refuse_errors_of_nobody(plan: Plan, errors: Errors) -> None:
    if not any(o.id == errors.of and errors.inputs == (o.id,) for o in plan.operators if o.may_fail):
        raise PlanError(
            f"{errors.id!r} are the errors of {errors.of!r}, which must be a function in this plan, and come "
            "right before it; remove both together"
        )


def _refuse_unread_errors(plan: Plan, operator: AnyOperator) -> None:
    """Refuse rows that would be put aside unread."""
    if not operator.gives_errors:
        return
    ends = [id for end in plan.of(Sink, KeyedOperator) for id in end.inputs]
    read = {above.id for id in ends for above in plan.upstream(id)}
    if not any(errors.of == operator.id and errors.id in read for errors in plan.of(Errors)):
        raise PlanError(
            f"operator {operator.id!r} has on_error='dead_letter', but nothing reads its errors: rows would vanish. "
            "Give them a sink: stream.errors.sink(...), in a running job ms.branch("
            f"{operator.id!r}, lambda stream: stream.errors.sink(...)); ms.sinks.noop() if they are not wanted"
        )


def refuse_revised(plan: Plan, operator: AnyOperator) -> None:
    """Refuse an operator that takes each window once over windows that are emitted again when they change."""
    for above in _windows_above(plan, operator, (KeyedOperator,)):
        if above.emit == "update" or above.lateness:
            why = 'emit="update"' if above.emit == "update" else "lateness"
            raise PlanError(
                f"{operator.id!r} takes each window of {above.id!r} once, but with {why} these are emitted again when "
                "they change, and would count again; remove that, or keep the newest of each in a function"
            )


def _refuse_time_of_windows(plan: Plan, session: Window) -> None:
    """Refuse sessions of windows by the start of these: the watermark is past it when they are emitted."""
    for above in _windows_above(plan, session, (Watermark,)) if session.is_session else ():
        raise PlanError(
            f"session window {session.id!r} would take the windows of {above.id!r} by their start, which the "
            "watermark has passed when they are emitted; write with_watermark('window_end', 0) between the two"
        )


def _windows_above(plan: Plan, operator: AnyOperator, until: tuple[type[Operator], ...]) -> Iterator[Window]:
    """The windows whose rows reach an operator, not through any of some kinds of others."""
    todo = list(operator.inputs)
    while todo:
        above = plan[todo.pop()]
        if isinstance(above, Window):
            yield above
        if not isinstance(above, until):
            todo += above.inputs


_RULES: tuple[tuple[type[Operator], Callable[[Plan, Any], object]], ...] = (
    (Late, windows_late_for),
    (Errors, _refuse_errors_of_nobody),
    (Operator, _refuse_unread_errors),
    (Window, refuse_revised),
    (Spread, refuse_revised),
    (Window, _refuse_time_of_windows),
    (KeyedOperator, _refuse_slots),
    (Spread, _refuse_windows_of_nobody),
)
