"""Where groups are after a change of the plan: as far as the numbers of slots allow, they stay where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from midstream import plan as p
from midstream.briefing import planned_routing, routing_of
from midstream.errors import PlanError
from midstream.resolve import Resolved
from midstream.routing import Routing

if TYPE_CHECKING:
    from midstream.engine import Engine


def routed(engine: Engine, running: Resolved, new: p.Plan) -> tuple[p.Plan, str]:
    """Give the keyed operators of a new plan their routing, and say how many groups change their slot."""
    operators, told = [], []
    for operator in new.operators:
        if isinstance(operator, (p.Process, p.Aggregate)):
            operator, moved = _placed(engine, running, operator)
            if moved:
                told.append(f"{moved} of {engine.groups} groups of {operator.id!r} change their slot")
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators)), "; ".join(told)


def _placed(engine: Engine, running: Resolved, operator: p.Keyed) -> tuple[p.Keyed, int]:
    if operator.slots > engine.groups:
        raise PlanError(
            f"operator {operator.id!r} cannot have {operator.slots} slots: a slot owns groups, and the job has "
            f"{engine.groups} of them for its life"
        )
    if operator.id not in running.keyed:
        return operator, 0
    before, slots = routing_of(engine, running, operator.id), min(operator.slots or engine.cores, engine.groups)
    undone = planned_routing(operator, engine.groups, slots)
    after = undone or (before if slots == before.slots else before.resized(slots))
    owners = () if after == Routing.even(engine.groups, slots) else after.owners
    return msgspec.structs.replace(operator, owners=owners), len(before.moved(after))
