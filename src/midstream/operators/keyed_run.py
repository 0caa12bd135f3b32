"""What a keyed operator needs in one run of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.operators.task import Epoch
from midstream.plan.routing import Routing
from midstream.plan.window_regimes import Regime
from midstream.state.history import Head


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """What one keyed operator needs in one run of an epoch."""

    head: Head
    epoch: Epoch
    routing: Routing
    combine: bool  # fold rows in the JVM before they go to Python
    markers: bool  # make slots without rows run too; left out where all are expected to have rows, to save a task
    anchor: str = ""  # the table that keeps slots on their executors, and makes them run too; none on one host
    both: Mapping[int, int] = field(default_factory=dict)  # group -> a second slot that gets its rows
    regimes: tuple[Regime, ...] = ()  # of windows: which have which size and slide; none: all as in the plan
