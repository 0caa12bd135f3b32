"""Strategies: how the state of groups moves from one executor to another while the job runs.

Give one to `ms.rescale`, `ms.move`, `ms.drain` or `ms.rebalance`, by its name or as a value:
`ms.rescale("sums", slots=8, strategy=ms.strategies.batched(8))`.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.errors import PlanError
from midstream.placement.strategies.all_at_once import AllAtOnce
from midstream.placement.strategies.batched import Batched
from midstream.placement.strategies.contract import Moving, Step, Strategy
from midstream.placement.strategies.live import Live
from midstream.placement.strategies.on_demand import OnDemand
from midstream.placement.strategies.parallel import Parallel
from midstream.placement.strategies.replicated import Replicated
from midstream.placement.strategies.restart import Restart

__all__ = [
    "NAMES",
    "Moving",
    "Step",
    "Strategy",
    "all_at_once",
    "batched",
    "live",
    "named",
    "on_demand",
    "parallel",
    "replicated",
    "restart",
]

live, all_at_once, batched, on_demand, parallel, replicated, restart = (
    Live,
    AllAtOnce,
    Batched,
    OnDemand,
    Parallel,
    Replicated,
    Restart,
)
_KNOWN: dict[str, Callable[[], Strategy]] = {
    "live": Live,
    "all_at_once": AllAtOnce,
    "batched": Batched,
    "on_demand": OnDemand,
    "parallel": Parallel,
    "replicated": Replicated,
    "restart": Restart,
}


NAMES = tuple(_KNOWN)


def named(strategy: str | Strategy) -> Strategy:
    """Return the strategy of a name.

    >>> named("live")
    Live()
    """
    if isinstance(strategy, Strategy):
        return strategy
    if strategy not in _KNOWN:
        raise PlanError(f"there is no strategy {strategy!r}; there are {', '.join(_KNOWN)}")
    return _KNOWN[strategy]()
