"""Which runs of a group are merged, and when. Pure.

The newest runs of a group are merged into one when there are several of about one size: so a key is written again a
few times only as the state grows, and a key that is looked up meets few runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FAN_IN = 4  # runs of about one size that become one
MOST = 10  # runs of a group: with more, it is merged though others would be first
_FACTOR = 2  # an older run is of about one size with those after it, taken together, up to this


def due(rows: Sequence[int]) -> int:
    """Return how many of the newest runs of a group should become one; 0 for none yet.

    >>> (
    ...     due([100, 100, 100]),
    ...     due([100, 100, 100, 100]),
    ...     due([100, 100, 100, 100, 1000]),
    ...     due([100, 100, 200, 300, 1000]),
    ... )
    (0, 4, 4, 5)

    Args:
        rows: of each run, the newest first.
    """
    count = total = 0
    for size in rows:
        if count and size > _FACTOR * total:
            break
        total += size
        count += 1
    if len(rows) > MOST:
        return max(count, len(rows) - MOST + 1)
    return count if count >= FAN_IN else 0


def chosen(runs: Mapping[int, Sequence[int]], budget: int) -> dict[int, int]:
    """Choose what is merged now: of groups with the most runs first, until as many rows are written as there may be.

    Groups that have more runs than there may be are always among them.

    >>> chosen({1: [10] * 4, 2: [10] * 5, 3: [10]}, budget=50)
    {2: 5}

    Args:
        runs: group -> rows of each of its runs, the newest first.
        budget: rows that may be written.
    """
    found = {}
    for group in sorted(runs, key=lambda group: (-len(runs[group]), group)):
        count = due(runs[group])
        size = sum(runs[group][:count])
        if count and (size <= budget or len(runs[group]) > MOST):
            found[group] = count
            budget -= size
    return found
