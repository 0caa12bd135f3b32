"""Old and new executor both process until they agree; only the old one's results count. Then all groups flip."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.placement.strategies.contract import Moving, Step, Strategy


@dataclass(frozen=True, slots=True)
class Parallel(Strategy):
    """Flips nothing until the new executor has, from the same rows, the same result for every group as the old one."""

    def step(self, moving: Moving) -> Step:
        """Fetch, process twice what was fetched, flip everything.

        >>> step = Parallel().step(Moving((3, 1), ready=frozenset({3})))
        >>> step.fetch, sorted(step.both)
        ((3, 1), [3])
        >>> sorted(Parallel().step(Moving((3, 1), frozenset({3, 1}), agreed=frozenset({3, 1}))).flip)
        [1, 3]
        """
        if moving.agreed >= set(moving.waiting):
            return Step(flip=frozenset(moving.waiting))
        return Step(fetch=moving.waiting, both=moving.ready)
