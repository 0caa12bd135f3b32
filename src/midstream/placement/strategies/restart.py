"""Stop, start again, read all state: what one does without Midstream, and what the others are measured against."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class Restart(Strategy):
    """Flips everything now, after the query was stopped and every executor has dropped its copies, moved or not."""

    @property
    def starts_afresh(self) -> bool:
        """All state is read again."""
        return True

    def step(self, moving: Moving) -> Step:
        """Flip everything.

        >>> sorted(Restart().step(Moving((3, 1))).flip)
        [1, 3]
        """
        return Step(flip=frozenset(moving.waiting))
