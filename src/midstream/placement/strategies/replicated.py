"""A second copy of every group that is to move is kept up to date until all are complete; then all flip at once."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class Replicated(Strategy):
    """Flips nothing until the new executor has a copy of every group that is at most one epoch behind."""

    def step(self, moving: Moving) -> Step:
        """Fetch, or flip everything.

        >>> Replicated().step(Moving((3, 1), frozenset({3}))).fetch
        (3, 1)
        >>> sorted(Replicated().step(Moving((3, 1), frozenset({3, 1}))).flip)
        [1, 3]
        """
        if moving.ready >= set(moving.waiting):
            return Step(flip=frozenset(moving.waiting))
        return Step(fetch=(*(g for g in moving.waiting if g in moving.ready), *_missing(moving)))


def _missing(moving: Moving) -> tuple[int, ...]:
    return tuple(group for group in moving.waiting if group not in moving.ready)
