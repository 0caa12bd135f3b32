"""The old executor serves a group until the new one has a copy; those with most rows go first. The default."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class Live(Strategy):
    """Flips each group as soon as its copy on the new executor lacks one epoch at most, and fetches the others."""

    def step(self, moving: Moving) -> Step:
        """Flip what is ready, fetch the rest.

        >>> step = Live().step(Moving((5, 3, 1), frozenset({3})))
        >>> sorted(step.flip), step.fetch
        ([3], (5, 1))
        """
        rest = tuple(group for group in moving.waiting if group not in moving.ready)
        return Step(flip=moving.ready & frozenset(moving.waiting), fetch=rest)
