"""The wiring of a plan: whether operators fit together, by ids and kinds alone. Pure: schemas are checked elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.errors import PlanError
from midstream.plan.plan import (
    Aggregate,
    AnyOperator,
    Errors,
    KeyedOperator,
    Late,
    MapArrow,
    Operator,
    Plan,
    Process,
    Sink,
    Source,
    Spread,
    Watermark,
    Window,
    gives_errors,
    windows_late_for,
)


def check(plan: Plan) -> None:
    """Refuse a plan whose ids or wiring are wrong."""
    seen: set[str] = set()
    for operator in plan.operators:
        if operator.id in seen:
            raise PlanError(
                f"the id {operator.id!r} is used twice in flow {plan.name!r}; ids own state, so each is one"
            )
        if not operator.id or not all(c.isalnum() or c in "_-." for c in operator.id) or operator.id.startswith("."):
            raise PlanError(f"{operator.id!r} cannot be an id: use letters, digits, '_', '-' and '.'")
        for wanted in operator.inputs:
            if wanted not in seen:
                raise PlanError(f"operator {operator.id!r} reads {wanted!r}, which is not defined before it")
        if isinstance(operator, Late):
            windows_late_for(plan, operator)
        if isinstance(operator, Errors) or gives_errors(operator):
            _check_errors(plan, operator)
        if isinstance(operator, (Window, Spread)):
            refuse_revised(plan, operator)
        if isinstance(operator, Window) and operator.is_session:
            _refuse_time_of_windows(plan, operator)
        if isinstance(operator, KeyedOperator) and (not isinstance(operator.slots, int) or operator.slots < 0):
            raise PlanError(
                f"operator {operator.id!r}: slots= is a number of tasks, or 0 for one per core, not {operator.slots!r}"
            )
        if isinstance(operator, Spread) and not any(operator.of == keyed.id for keyed in plan.of(Process)):
            raise PlanError(
                f"{operator.id!r} has the windows of {operator.of!r}, which is not in this plan: remove both together"
            )
        seen.add(operator.id)
    if not plan.of(Source):
        raise PlanError(f"flow {plan.name!r} has no source; add one with flow.source(id, streaming_dataframe)")
    if not plan.of(Sink) and not plan.of(KeyedOperator):
        raise PlanError(f"flow {plan.name!r} has neither a sink nor a keyed operator: it would compute nothing")


def _check_errors(plan: Plan, operator: Errors | Process | MapArrow) -> None:
    """Refuse errors of what has none, and rows that would be put aside where nobody sees them."""
    if isinstance(operator, Errors):
        if not any(o.id == operator.of and operator.inputs == (o.id,) for o in plan.of(Process, MapArrow)):
            raise PlanError(
                f"{operator.id!r} are the errors of {operator.of!r}, which must be a function in this plan, and stand "
                "right before it; remove both together"
            )
        return
    ends = plan.of(Sink, Process, Aggregate)
    read = {above.id for end in ends for id in end.inputs for above in plan.upstream(id) if isinstance(above, Errors)}
    if not any(errors.of == operator.id and errors.id in read for errors in plan.of(Errors)):
        raise PlanError(
            f"operator {operator.id!r} has on_error='dead_letter', and nobody reads its errors: its rows would vanish. "
            "Give them a sink: stream.errors.sink(...), in a running job ms.branch("
            f"{operator.id!r}, lambda stream: stream.errors.sink(...)); ms.sinks.noop() if they are not wanted"
        )


def refuse_revised(plan: Plan, operator: AnyOperator) -> None:
    """Refuse an operator that takes windows once each over windows that come out again when they change."""
    for above in _windows_above(plan, operator, (KeyedOperator,)):
        if above.emit == "update" or above.lateness:
            why = 'emit="update"' if above.emit == "update" else "lateness"
            raise PlanError(
                f"{operator.id!r} takes each window of {above.id!r} once, but with {why} these come out again when "
                "they change, and would count again; leave that away, or keep the newest of each in a function"
            )


def _refuse_time_of_windows(plan: Plan, session: Window) -> None:
    """Refuse sessions of windows by the start of these: the watermark is past it when they come."""
    for above in _windows_above(plan, session, (Watermark,)):
        raise PlanError(
            f"session window {session.id!r} would take the windows of {above.id!r} by their start, which the "
            "watermark has passed when they come out; say with_watermark('window_end', 0) between the two"
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
