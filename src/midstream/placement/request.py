"""A request of a change for other places, as a value: it is fulfilled when the modification is prepared."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Strategy


@dataclass(frozen=True, slots=True)
class Wish:
    """Where groups shall go, and how."""

    operator: str | None  # None: all
    strategy: Strategy
    to: str = ""  # an executor that gets these groups, or the groups of these slots
    groups: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    without: str = ""  # an executor that loses all its groups
    by_load: bool = False  # all executors shall have the same to do
