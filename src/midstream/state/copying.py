"""What a slot copies of its state beside its work: in the order given, within its budget."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.state.cache import Cache


def complete(cache: Cache, groups: Iterable[int]) -> int:
    """Copy groups that are not here, or only read in place, until the budget is spent; gives how many are left."""
    left = 0
    for group in groups:
        if cache.head.changed[group] is not None and not cache.is_whole(group):
            if cache.budget.is_spent:
                left += 1
                continue
            with cache.budget.bringing():
                cache.bring_whole(group)
    return left


def fetch(cache: Cache, groups: Iterable[int]) -> list[int]:
    """Bring groups until the budget is spent; gives those that are here.

    One that is here already costs nothing of it: it only follows along.
    """
    fetched = []
    for group in groups:
        if cache.budget.is_spent and not cache.lacks_logs_only(group):
            continue
        with cache.budget.bringing():
            cache.bring_whole(group)
        fetched.append(group)
    return fetched
