"""Changes of where an operator runs: values for `job.modify` like any other, so atomic with others and undoable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from midstream.errors import PlanError
from midstream.modifications.changes import Change
from midstream.modifications.successors import article
from midstream.placement.request import Wish
from midstream.placement.strategies import Strategy, named
from midstream.plan import plan as p
from midstream.plan.compatibility import asked
from midstream.plan.plan import Plan


def rescale(id: str | None = None, *, slots: int, strategy: str | Strategy = "live") -> Change:
    """Change the number of slots of a keyed operator, or of all of them: its parallelism.

    The fewest groups change their slot, chosen by what each had to do in the last epochs. On one host nothing is
    copied; on a cluster groups move to the executors that have the new slots, as the strategy says.
    """
    if slots < 1:
        raise PlanError(f"rescale: slots must be 1 or more, not {slots}")

    def apply(plan: Plan) -> Plan:
        for operator in _keyed(plan, id):
            changed = msgspec.structs.replace(operator, slots=slots, asked=asked(operator), owners=())
            plan = msgspec.structs.replace(
                plan, operators=tuple(changed if o.id == operator.id else o for o in plan.operators)
            )
        return plan

    shown = "all" if id is None else repr(id)
    return Change(f"rescale {shown} to {slots} slots", apply, Wish(id, named(strategy)))


def move(
    id: str,
    *,
    to: str,
    groups: Iterable[int] | None = None,
    slots: Iterable[int] | None = None,
    strategy: str | Strategy = "live",
) -> Change:
    """Move groups of a keyed operator, or all groups of some of its slots, to an executor.

    `job.slots` shows which slots and executors there are.
    """
    if (groups is None) == (slots is None):
        raise PlanError(f"move {id!r}: give either groups= or slots=")
    wish = Wish(id, named(strategy), to=to, groups=tuple(groups or ()), slots=tuple(slots or ()))
    if not wish.groups and not wish.slots:
        raise PlanError(f"move {id!r}: no group and no slot is named")
    what = f"groups {_listed(wish.groups)}" if wish.groups else f"slots {_listed(wish.slots)}"
    return Change(f"move {what} of {id!r} to executor {to}", _checked(id), wish)


def drain(executor: str, *, strategy: str | Strategy = "live") -> Change:
    """Move all groups of all operators away from an executor, then return the executor to Spark.

    No others move. Second copies come first where there are some, else executors that have fewest groups.
    """
    return Change(f"drain executor {executor}", _checked(None), Wish(None, named(strategy), without=str(executor)))


def rebalance(id: str | None = None, *, strategy: str | Strategy = "live") -> Change:
    """Spread the groups of a keyed operator, or of all, so that all executors have the same to do.

    An executor that has joined since gets its share; where it does not, because `slots` are fewer or rows are of few
    groups, the note of the modification says why. What a group has to do is the rows of the last epochs.
    """
    shown = "all" if id is None else repr(id)
    return Change(f"rebalance {shown}", _checked(id), Wish(id, named(strategy), by_load=True))


def _checked(id: str | None) -> Callable[[Plan], Plan]:
    """Leave a plan as it is, if it has the operator."""

    def apply(plan: Plan) -> Plan:
        _keyed(plan, id)
        return plan

    return apply


def _keyed(plan: Plan, id: str | None) -> list[p.KeyedOperator]:
    if id is not None and not isinstance(plan[id], p.KeyedOperator):
        raise PlanError(f"{id!r} is {article(plan[id])} and has no slots; only keyed operators have")
    return [operator for operator in plan.of(p.KeyedOperator) if id in (None, operator.id)]


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return f"{shown} and {len(numbers) - 5} more" if len(numbers) > 5 else shown
