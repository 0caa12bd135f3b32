"""The new executor serves at once, and reads what a row needs where it is stored; the rest is copied bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class OnDemand(Strategy):
    """Flips everything now; nothing is copied before a row is processed."""

    @property
    def copies_first(self) -> bool:
        """State is read where it is stored."""
        return False

    def step(self, moving: Moving) -> Step:
        """Flip everything.

        >>> sorted(OnDemand().step(Moving((3, 1))).flip)
        [1, 3]
        """
        return Step(flip=frozenset(moving.waiting))
