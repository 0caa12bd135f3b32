"""All groups move in one epoch, which takes as long as copying them."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class AllAtOnce(Strategy):
    """Flips everything now; the next epoch copies it all before it processes a row."""

    def step(self, moving: Moving) -> Step:
        """Flip everything.

        >>> sorted(AllAtOnce().step(Moving((3, 1))).flip)
        [1, 3]
        """
        return Step(flip=frozenset(moving.waiting))
