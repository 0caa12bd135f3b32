"""The assignment after a change of the plan: groups stay where they are as far as the numbers of slots allow."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from midstream.errors import PlanError
from midstream.operators.resolved import Resolved
from midstream.placement.assignment import Assignment, planned_routing
from midstream.placement.balance import even, resized
from midstream.placement.housing import Housing
from midstream.placement.request import Wish
from midstream.plan import plan as p
from midstream.plan.routing import Routing

_log = logging.getLogger("midstream")


def routed(assignment: Assignment, running: Resolved, new: p.Plan, wishes: Sequence[Wish] = ()) -> tuple[p.Plan, str]:
    """Assign the keyed operators of a new plan their routing; say how many groups move and which executors get none."""
    operators, told = [], []
    if not assignment.is_apart:
        _refuse_places(wishes)
    for operator in new.operators:
        if isinstance(operator, p.KeyedOperator):
            if operator.slots > assignment.groups:
                raise PlanError(
                    f"operator {operator.id!r} cannot have {operator.slots} slots: a slot owns groups, and the job has "
                    f"{assignment.groups} of them; choose fewer slots"
                )
            if operator.id in running.keyed:
                mine = [wish for wish in wishes if wish.operator in (None, operator.id)]
                place = _housed if assignment.is_apart else _slotted
                operator, moved, why_not = place(assignment, running, operator, mine)
                if moved:
                    where = "executor" if assignment.is_apart else "slot"
                    told.append(f"{moved} of {assignment.groups} groups of {operator.id!r} change their {where}")
                if why_not:
                    told.append(why_not)
                    _log.warning("%s", why_not)
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators)), "; ".join(told)


def _slotted(
    assignment: Assignment, running: Resolved, operator: p.KeyedOperator, wishes: Sequence[Wish]
) -> tuple[p.KeyedOperator, int, str]:
    """On one host: groups change their slot, and nothing is copied."""
    load = assignment.load[operator.id]
    before = assignment.serving(running, operator.id).routing
    slots = min(operator.slots or assignment.seating.cores, assignment.groups)
    undone = planned_routing(operator, assignment.groups, slots)
    after = undone or (before if slots == before.slots else resized(before, slots, load))
    if any(wish.by_load for wish in wishes):
        after = Routing(even(after.owners, dict.fromkeys(range(slots), 1), load), slots)
    owners = () if after == Routing.even(assignment.groups, slots) else after.owners
    return msgspec.structs.replace(operator, owners=owners), len(before.moved(after)), ""


def _housed(
    assignment: Assignment, running: Resolved, operator: p.KeyedOperator, wishes: Sequence[Wish]
) -> tuple[p.KeyedOperator, int, str]:
    """On a cluster: groups change their executor."""
    id, was = operator.id, running.plan[operator.id]
    assert isinstance(was, p.KeyedOperator)
    slots = min(operator.slots or assignment.seating.cores, assignment.groups)
    housing = Housing(
        id,
        assignment.homes_of(id, running),
        assignment.seating.where,
        assignment.slots(running.plan, id),
        assignment.load[id],
        assignment.standbys[id].standing,
        assignment.seating.drained,
    )
    if operator.homes and operator.homes != was.homes:  # a modification is undone
        after, told = housing.back_to(operator.homes, slots)
    else:
        after, told = housing.after(wishes, slots, is_fixed=bool(operator.slots))
    moved = sum(a != b for a, b in zip(housing.homes, after, strict=True))
    return msgspec.structs.replace(operator, homes=after), moved, told


def _refuse_places(wishes: Sequence[Wish]) -> None:
    for wish in wishes:
        if wish.to or wish.without:
            raise PlanError("the job runs on one host: there is no other executor to move state to")
