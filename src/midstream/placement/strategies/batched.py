"""A few groups per epoch: each of these epochs is a little slower, none is very slow."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class Batched(Strategy):
    """Flips a number of groups in each epoch, those with fewest rows last."""

    groups: int = 4

    def step(self, moving: Moving) -> Step:
        """Flip the next few.

        >>> sorted(Batched(2).step(Moving((5, 3, 1))).flip)
        [3, 5]
        """
        return Step(flip=frozenset(moving.waiting[: self.groups]))

    def __str__(self) -> str:
        return f"Batched({self.groups})"
