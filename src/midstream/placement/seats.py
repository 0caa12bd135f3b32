"""Seats: the partitions of a shuffle, which executors lend to the groups that they serve. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from midstream.placement.balance import adopted, even, fair
from midstream.plan.routing import Routing


def shares(
    where: Sequence[str], slots: int, homes: Sequence[str] = (), without: frozenset[str] = frozenset()
) -> dict[str, int]:
    """How many seats each executor lends to an operator with this many slots: in turn, those that have groups first.

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


@dataclass(frozen=True, slots=True)
class Dealing:
    """What counts where the groups of an operator are assigned to executors."""

    where: Sequence[str]  # seat -> executor
    slots: int  # wanted; there may be fewer seats
    load: Mapping[int, float] = field(default_factory=dict)  # group -> rows of the last epochs
    without: frozenset[str] = frozenset()  # executors that get nothing
    near: Mapping[int, Collection[str]] | None = None  # group -> executors that have a copy, and come first

    def by_number(self, homes: Sequence[str]) -> tuple[str, ...]:
        """Assign groups so that all have equally many, and the fewest move."""
        return fair(homes, self._shares(homes), self.load, self.near)

    def by_load(self, homes: Sequence[str]) -> tuple[str, ...]:
        """Assign groups so that all have equally much to do, and the fewest move."""
        return even(homes, self._shares(homes), self.load, self.near)

    def homeless(self, homes: Sequence[str]) -> tuple[str, ...]:
        """Assign the groups of executors that are gone, or get nothing, and no others.

        Executors with equally many seats count the same, also where slots do not divide: no reason to move a group.

        >>> Dealing(["a", "b", "c"], 2, without=frozenset("a")).homeless(["a", "b", "a", "b"])
        ('c', 'b', 'c', 'b')
        >>> Dealing(["a", "b", "a", "b"], 3).homeless(["gone"] * 4)
        ('a', 'a', 'b', 'b')
        """
        lent, seats = self._shares(homes), Counter(self.where)
        kept = [home for home in homes if home in seats and home not in self.without]
        alike = {place: min(seats[place], max(lent.values())) for place in (*lent, *kept)}
        return adopted(homes, alike, self.load, self.near)

    def _shares(self, homes: Sequence[str]) -> dict[str, int]:
        return shares(self.where, self.slots, homes, self.without)


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
