"""The validation of a new plan against the running one: wiring, schemas, keys, state, sinks; nothing is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from midstream.errors import PlanError
from midstream.operators.resolve import resolve
from midstream.operators.resolved import ResolutionError, Resolved, check_layout
from midstream.plan import plan as p
from midstream.plan.compatibility import check_partitioning, check_state_fits, difference, inheriting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from midstream.checkpoint.records import OperatorState


def validated(
    spark: SparkSession, running: Resolved, new: p.Plan, states: dict[str, OperatorState], told: str = ""
) -> Resolved:
    """Resolve a new plan, or refuse it, saying which operator does not fit and what to do.

    Args:
        spark: the session.
        running: the plan that it is to follow.
        new: the plan.
        states: what the newest record says of each operator.
        told: why a plan may be as it was, where that is known.
    """
    if not difference(running.plan, new) and _setup(running.plan) == _setup(new):
        why = told or f"the running plan (version {running.plan.version}) is the same"
        raise PlanError(f"nothing would change: {why}")
    check_state_fits(running.plan, new)
    check_partitioning(running.plan, new)
    new = _placed(inheriting(running.plan, new), running, states)
    try:
        resolved = resolve(spark, new)
    except ResolutionError as error:
        raise PlanError(_with_schemas(error, running)) from error
    for id, keyed in resolved.keyed.items():
        if id in states:
            check_layout(id, states[id].layouts, keyed)
    _check_sinks(running, resolved)
    return resolved


def _setup(plan: p.Plan) -> object:
    """What may change without a change of what is computed."""
    return plan.tuning, {o.id: (o.slots, o.owners, o.homes) for o in plan.of(p.KeyedOperator)}


def _placed(new: p.Plan, running: Resolved, states: dict[str, OperatorState]) -> p.Plan:
    """Place a migrated form of state where no form before it has been."""
    tops = {id: keyed.top for id, keyed in running.keyed.items()}
    for id, state in states.items():
        tops[id] = max(tops.get(id, 0), state.top)
    operators = tuple(operator.placed(max(tops.get(operator.id, 0), 1)) for operator in new.operators)
    return msgspec.structs.replace(new, operators=operators)


def _with_schemas(error: ResolutionError, running: Resolved) -> str:
    """Say what the operator that does not fit got under the running plan, and what it would get now."""
    told = [str(error)]
    for id, schema in error.inputs.items():
        before = running.schemas.get(id)
        if before is not None and before != schema:
            told.append(
                f"Its input {id!r} is {before.simpleString()} now and would become {schema.simpleString()}; change "
                f"{error.operator!r} in the same step, or keep the columns that it needs"
            )
    return ". ".join(told)


def _check_sinks(running: Resolved, new: Resolved) -> None:
    """Refuse to send rows of another schema to a sink that stays: its readers know the old one."""
    before = {sink.id: sink for sink in running.plan.of(p.Sink)}
    for sink in new.plan.of(p.Sink):
        old = before.get(sink.id)
        if old is None or old.describe != sink.describe:
            continue
        was, now = running.schemas[old.id], new.schemas[sink.id]
        if [(f.name, f.dataType) for f in was] != [(f.name, f.dataType) for f in now]:
            raise PlanError(
                f"sink {sink.id!r} gets rows of {was.simpleString()} and would get {now.simpleString()}. Keep the "
                "schema, or in the same step ms.remove_sink it and ms.add_sink one with another target"
            )
