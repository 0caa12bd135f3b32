"""Where groups are after a change of the plan: as far as the numbers of slots allow, they stay where they were."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from midstream.errors import PlanError
from midstream.operators.resolve import Resolved
from midstream.placement.assignment import planned_routing
from midstream.placement.balance import even
from midstream.placement.housing import Housing
from midstream.placement.request import Wish
from midstream.plan import plan as p
from midstream.plan.routing import Routing

if TYPE_CHECKING:
    from midstream.epoch.engine import Engine

_log = logging.getLogger("midstream")


def routed(engine: Engine, running: Resolved, new: p.Plan, wishes: Sequence[Wish] = ()) -> tuple[p.Plan, str]:
    """Give the keyed operators of a new plan their routing, and say how many groups move and who gets none."""
    operators, told = [], []
    if not engine.places.are_several:
        _refuse_places(wishes)
    for operator in new.operators:
        if isinstance(operator, (p.Process, p.Aggregate)):
            if operator.slots > engine.groups:
                raise PlanError(
                    f"operator {operator.id!r} cannot have {operator.slots} slots: a slot owns groups, and the job has "
                    f"{engine.groups} of them for its life"
                )
            if operator.id in running.keyed:
                mine = [wish for wish in wishes if wish.operator in (None, operator.id)]
                place = _housed if engine.places.are_several else _slotted
                operator, moved, why_not = place(engine, running, operator, mine)
                if moved:
                    where = "executor" if engine.places.are_several else "slot"
                    told.append(f"{moved} of {engine.groups} groups of {operator.id!r} change their {where}")
                if why_not:
                    told.append(why_not)
                    _log.warning("%s", why_not)
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators)), "; ".join(told)


def _slotted(engine: Engine, running: Resolved, operator: p.Keyed, wishes: Sequence[Wish]) -> tuple[p.Keyed, int, str]:
    """On one host: groups change their slot, and nothing is copied."""
    load = engine.places.load[operator.id]
    before = engine.places.briefing(running, operator.id).routing
    slots = min(operator.slots or engine.cores, engine.groups)
    undone = planned_routing(operator, engine.groups, slots)
    after = undone or (before if slots == before.slots else before.resized(slots, load))
    if any(wish.by_load for wish in wishes):
        after = Routing(even(after.owners, dict.fromkeys(range(slots), 1), load), slots)
    owners = () if after == Routing.even(engine.groups, slots) else after.owners
    return msgspec.structs.replace(operator, owners=owners), len(before.moved(after)), ""


def _housed(engine: Engine, running: Resolved, operator: p.Keyed, wishes: Sequence[Wish]) -> tuple[p.Keyed, int, str]:
    """On a cluster: groups change their executor."""
    places, id, was = engine.places, operator.id, running.plan[operator.id]
    assert isinstance(was, (p.Process, p.Aggregate))
    slots = min(operator.slots or engine.cores, engine.groups)
    housing = Housing(
        id,
        places.homes_of(id, running),
        places.where,
        engine.slots(id, running),
        places.load[id],
        places.standbys[id].standing,
        places.drained,
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
            raise PlanError("the job runs on one host, which is one place: there is nowhere to move state to")
