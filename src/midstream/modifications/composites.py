"""Operators of several parts, which are made over a plan: `best.windows`, `best.rows` and `best` are a top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from midstream.errors import PlanError
from midstream.plan import plan as p
from midstream.plan.plan import AnyOperator, Plan

PARTS = ("left", "right", "rows", "windows")  # what stands before `id` is called `id.left`, ...


@dataclass(frozen=True, slots=True)
class Built:
    """How an operator is made where the columns of its rows are known."""

    over: Callable[[Plan, str, str], Plan]  # gives a plan with one more, given the id of what it reads, and its own

    def instead(self, plan: Plan, id: str) -> Plan:
        """Make it in the place of another one and its parts; what read that one reads it."""
        parts, read = _parts(plan, id)

        def is_behind(operator: AnyOperator) -> bool:
            return any(above.id in parts or _is_late(above, id) for above in plan.upstream(operator.id))

        behind = [operator for operator in plan.operators if is_behind(operator)]
        before = tuple(operator for operator in plan.operators if operator not in behind)
        made = self.over(msgspec.structs.replace(plan, operators=before), read, id)
        known = {operator.id for operator in made.operators}
        rest = [o for o in behind if o.id not in parts and not (_is_late(o, id) and o.id in known)]
        if clash := sorted(known.intersection(operator.id for operator in rest)):
            raise PlanError(f"what is built in the place of {id!r} has an operator {clash[0]!r}, as the plan has")
        windows = p.windows_of(made, id)
        if windows is not None:  # late rows are those that the new windows get
            rest = [msgspec.structs.replace(o, inputs=windows.inputs) if _is_late(o, id) else o for o in rest]
        return msgspec.structs.replace(plan, operators=p.in_order([*made.operators, *rest]))


def _is_late(operator: AnyOperator, id: str) -> bool:
    return isinstance(operator, p.Late) and operator.of == id


def _parts(plan: Plan, id: str) -> tuple[set[str], str]:
    """The parts of an operator, itself too, and what they read; of a join the left side."""
    named = {o.id for o in plan.operators} & {f"{id}.{part}" for part in PARTS}
    parts, todo = {id}, [id]
    while todo:
        above = [input for input in plan[todo.pop()].inputs if input in named]
        parts.update(above)
        todo += above
    if named - parts:
        raise PlanError(f"{min(named - parts)!r} is not before {id!r} alone: remove what stands between the two first")
    read = id
    while read in parts:
        if not plan[read].inputs:
            raise PlanError(f"{id!r} reads nothing, so no other operator can be built in its place")
        read = plan[read].inputs[0]
    return parts, read
