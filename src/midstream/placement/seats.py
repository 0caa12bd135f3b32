"""Seats: the partitions of a shuffle, which executors lend to the groups that they serve. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from midstream.placement.balance import adopted, even, fair
from midstream.plan.routing import Routing


def shares(
    where: Sequence[str], slots: int, homes: Sequence[str] = (), without: frozenset[str] = frozenset()
) -> dict[str, int]:
    """How many seats each executor lends to an operator of so many slots: in turn, those that have groups first.

    >>> shares(["a", "b", "c"], 2, homes=["c", "c", "a"])
    {'c': 1, 'a': 1}
    >>> shares(["a", "a", "b"], 3)
    {'a': 2, 'b': 1}

    Args:
        where: seat -> executor.
        slots: wanted; there may be fewer seats.
        homes: group -> executor, as it is.
        without: executors that lend none.
    """
    seats, held = Counter(place for place in where if place not in without), Counter(homes)
    order = sorted(seats, key=lambda place: (-held[place], place))
    lent = dict.fromkeys(order[:slots], 0)
    while sum(lent.values()) < min(slots, seats.total()):
        for place in [place for place in lent if lent[place] < seats[place]][: slots - sum(lent.values())]:
            lent[place] += 1
    return lent


def homes_for(
    where: Sequence[str],
    slots: int,
    homes: Sequence[str],
    load: Mapping[int, float],
    without: frozenset[str] = frozenset(),
    near: Mapping[int, Collection[str]] | None = None,
    *,
    by_load: bool = False,
) -> tuple[str, ...]:
    """Deal groups out to executors so that all have as many, and the fewest move; `by_load`: have the same to do."""
    lent = shares(where, slots, homes, without)
    return even(homes, lent, load, near) if by_load else fair(homes, lent, load, near)


def homes_without(
    where: Sequence[str],
    slots: int,
    homes: Sequence[str],
    load: Mapping[int, float],
    without: frozenset[str] = frozenset(),
    near: Mapping[int, Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Deal out the groups of executors that are gone, or lend no seats, and no others.

    Executors with as many seats count alike, also where slots do not divide: that is no reason to move a group.

    >>> homes_without(["a", "b", "c"], 2, ["a", "b", "a", "b"], {}, frozenset("a"))
    ('c', 'b', 'c', 'b')
    >>> homes_without(["a", "b", "a", "b"], 3, ["gone"] * 4, {})
    ('a', 'a', 'b', 'b')
    """
    lent, seats = shares(where, slots, homes, without), Counter(where)
    kept = [home for home in homes if home in seats and home not in without]
    alike = {place: min(seats[place], max(lent.values())) for place in (*lent, *kept)}
    return adopted(homes, alike, load, near)


def seated(homes: Sequence[str], where: Sequence[str], slots: int) -> Routing:
    """Assign every group a seat at its home; one whose home is gone gets any seat that has groups, or the first.

    >>> seated(["a", "b", "a", "gone"], ["b", "a", "a"], slots=3).owners
    (1, 0, 2, 0)
    """
    lent = shares(where, slots, homes)
    used: dict[str, list[int]] = {place: [] for place in lent}
    for seat, place in enumerate(where):
        if place in used and len(used[place]) < lent[place]:
            used[place].append(seat)
    taken: Counter[int] = Counter()
    owners = []
    for home in homes:
        seats = used.get(home) or [seat for seat, place in enumerate(where) if place == home]
        seats = seats or [seat for group in used.values() for seat in group] or [0]
        seat = min(seats, key=lambda seat: (taken[seat], seat))
        taken[seat] += 1
        owners.append(seat)
    return Routing(tuple(owners), len(where))
