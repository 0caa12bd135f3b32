"""Where groups are after a change of the plan: as far as the numbers of slots allow, they stay where they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from midstream import plan as p
from midstream.balance import even
from midstream.errors import PlanError
from midstream.migration.wish import Wish
from midstream.places import planned_routing
from midstream.resolve import Resolved
from midstream.routing import Routing
from midstream.seats import homes_for

if TYPE_CHECKING:
    from midstream.engine import Engine


def routed(engine: Engine, running: Resolved, new: p.Plan, wishes: Sequence[Wish] = ()) -> tuple[p.Plan, str]:
    """Give the keyed operators of a new plan their routing, and say how many groups change their place."""
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
                operator, moved = place(engine, running, operator, mine)
                if moved:
                    where = "executor" if engine.places.are_several else "slot"
                    told.append(f"{moved} of {engine.groups} groups of {operator.id!r} change their {where}")
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators)), "; ".join(told)


def _slotted(engine: Engine, running: Resolved, operator: p.Keyed, wishes: Sequence[Wish]) -> tuple[p.Keyed, int]:
    """On one host: groups change their slot, and nothing is copied."""
    load = engine.places.load[operator.id]
    before = engine.places.briefing(running, operator.id).routing
    slots = min(operator.slots or engine.cores, engine.groups)
    undone = planned_routing(operator, engine.groups, slots)
    after = undone or (before if slots == before.slots else before.resized(slots, load))
    if any(wish.by_load for wish in wishes):
        after = Routing(even(after.owners, dict.fromkeys(range(slots), 1), load), slots)
    owners = () if after == Routing.even(engine.groups, slots) else after.owners
    return msgspec.structs.replace(operator, owners=owners), len(before.moved(after))


def _housed(engine: Engine, running: Resolved, operator: p.Keyed, wishes: Sequence[Wish]) -> tuple[p.Keyed, int]:
    """On a cluster: groups change their executor."""
    places, id = engine.places, operator.id
    before = places.homes_of(id, running)
    was = running.plan[id]
    assert isinstance(was, (p.Process, p.Aggregate))
    slots = min(operator.slots or engine.cores, engine.groups)
    without = places.drained | {wish.without for wish in wishes if wish.without}
    _check(places.where, without, wishes)
    if operator.homes and operator.homes != was.homes:  # a modification is undone
        there = set(places.where) - without
        after = tuple(home if home in there else before[g] for g, home in enumerate(operator.homes))
    elif wishes or slots != engine.slots(id, running):
        by_load = any(wish.by_load for wish in wishes)
        spread = not wishes or any(not wish.to for wish in wishes)
        load = places.load[id]
        standing = places.standbys[id]
        known = [
            standing.home(g, set(places.where) - without) or h if h in without else h for g, h in enumerate(before)
        ]
        after = homes_for(places.where, slots, known, load, without, by_load=by_load) if spread else before
    else:
        after = before
    for wish in wishes:
        if wish.to:
            routing = places.briefing(running, id).routing
            groups = set(wish.groups) | {group for slot in wish.slots for group in routing.groups_of(slot)}
            if not groups or max(groups) >= engine.groups:
                raise PlanError(
                    f"operator {id!r}: there are groups 0 to {engine.groups - 1}, and slots as job.slots says"
                )
            after = tuple(wish.to if group in groups else home for group, home in enumerate(after))
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    return msgspec.structs.replace(operator, homes=after), moved


def _check(where: Sequence[str], without: frozenset[str], wishes: Sequence[Wish]) -> None:
    known = sorted(set(where))
    for wish in wishes:
        for named in (wish.to, wish.without):
            if named and named not in known:
                raise PlanError(f"there is no executor {named!r} with a seat of this job; there are {', '.join(known)}")
    if not set(known) - without:
        raise PlanError(f"executor {', '.join(sorted(without))} is all there is; add another before it is drained")


def _refuse_places(wishes: Sequence[Wish]) -> None:
    for wish in wishes:
        if wish.to or wish.without:
            raise PlanError("the job runs on one host, which is one place: there is nowhere to move state to")
