"""Operators of several parts, which are made over a plan: `best.windows`, `best.rows` and `best` are a top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from midstream import plan as p
from midstream.errors import PlanError
from midstream.plan import AnyOperator, Plan


@dataclass(frozen=True, slots=True)
class Built:
    """How an operator is made where the columns of its rows are known."""

    grown: Callable[[Plan, str, str], Plan]  # of a plan, the id of an operator to read, and of the new one

    def instead(self, plan: Plan, id: str) -> Plan:
        """Make it in the place of another one, with all its parts: what stands before it and is named after it."""
        parts = {o.id for o in plan.upstream(id) if o.id == id or o.id.startswith(f"{id}.")}
        read = [input for o in plan.operators if o.id in parts for input in o.inputs if input not in parts]
        if not read:
            raise PlanError(f"{id!r} reads nothing, so no other operator can be built in its place")

        def is_behind(operator: AnyOperator) -> bool:
            above = list(plan.upstream(operator.id))
            return any(o.id in parts or (isinstance(o, p.Late) and o.of == id) for o in above)

        behind = [operator for operator in plan.operators if is_behind(operator)]
        before = tuple(operator for operator in plan.operators if operator not in behind)
        grown = self.grown(msgspec.structs.replace(plan, operators=before), read[0], id).operators
        made = {operator.id for operator in grown}
        rest = [operator for operator in behind if operator.id not in made | parts]
        return msgspec.structs.replace(plan, operators=p.in_order([*grown, *rest]))
