"""What is worth knowing of a running plan, as text: the tree of its operators, and keys that are too hot for a slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.events import Progress
from midstream.operators.kinds import keyed_kind_of
from midstream.plan import plan as p


def explained_plan(plan: p.Plan, progress: Progress | None, slots: Callable[[str], int]) -> str:
    """Return the tree of a plan, with a line for each operator whose hottest key decides how long an epoch takes.

    Args:
        plan: that runs.
        progress: of the newest epoch.
        slots: how many an operator has.
    """
    lines = [plan.explain()]
    if progress is not None:
        lines += _hot(plan, progress, slots)
    return "\n".join(lines)


def _hot(plan: p.Plan, progress: Progress, slots: Callable[[str], int]) -> Iterator[str]:
    for operator in plan.of(p.KeyedOperator):
        hot = progress.hottest.get(operator.id)
        if hot is not None and hot.rows > 1 and hot.share * slots(operator.id) > 1:
            advice = _FOLDED if keyed_kind_of(operator).folds_rows else _ONE_BY_ONE
            yield (
                f"{operator.id}: {hot.share:.0%} of the rows of the newest epoch have the key {hot.key}, more than the "
                f"share of a slot; {advice}"
            )


_FOLDED = "they are folded before Python sees them, so only their way there takes longer"
_ONE_BY_ONE = (
    "one slot does all of their work, and more slots do not help. Let a declared aggregate fold them, if that can be "
    "said so; or add a column to the key, and put the parts together in an operator behind it"
)
