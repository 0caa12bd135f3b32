"""The heat of groups: the rows of the epoch at hand, then those of the epochs before it, each counting less. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

_DECAY = 0.8  # of what a group had to do, from epoch to epoch


def counted(groups: npt.NDArray[np.int32], rows: npt.NDArray[np.int64] | None = None) -> dict[int, int]:
    """Count the rows of each group.

    >>> counted(np.array([3, 1, 3], np.int32))
    {1: 1, 3: 2}
    >>> counted(np.array([3, 1, 3], np.int32), np.array([5, 1, 2]))
    {1: 1, 3: 7}

    Args:
        groups: of what a slot has received.
        rows: how many rows each of these stands for, where they were folded on the way.
    """
    counts = np.bincount(groups, rows)
    found = np.flatnonzero(counts)
    return dict(zip(found.tolist(), counts[found].astype(np.int64).tolist(), strict=True))


def hottest_first(groups: Iterable[int], rows: Mapping[int, int], heat: Mapping[int, float]) -> list[int]:
    """Put groups in order: those with most rows of the epoch at hand, then those that were busiest before it.

    >>> hottest_first([1, 2, 3, 4], rows={3: 9}, heat={4: 2.5, 2: 0.5})
    [3, 4, 2, 1]
    """
    return sorted(groups, key=lambda group: (-rows.get(group, 0), -heat.get(group, 0.0), group))


def cooled(heat: Mapping[int, float], *counts: Mapping[int, int]) -> dict[int, float]:
    """Add the rows of an epoch, as its slots have counted them, to what is left of those before.

    An epoch without any says nothing of which groups are busy, and leaves it as it was.

    >>> cooled({1: 10.0, 2: 5.0}, {1: 2}, {3: 5})
    {1: 10.0, 2: 4.0, 3: 5.0}
    >>> cooled({1: 10.0}, {}, {})
    {1: 10.0}
    """
    if not any(counts):
        return dict(heat)
    after = {group: had * _DECAY for group, had in heat.items()}
    for each in counts:
        for group, rows in each.items():
            after[group] = after.get(group, 0.0) + rows
    return after
