"""The choice of an executor for each group of one operator, and the seats that executors lend to groups. Pure.

A seat is a partition of a shuffle. What is worth reporting about a choice is returned with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from midstream.errors import PlanError
from midstream.placement.balance import adopted, even, fair
from midstream.placement.request import Wish
from midstream.placement.standbys import Copy
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


@dataclass(frozen=True, slots=True)
class Housing:
    """Where the groups of one operator are, and which executors can take some."""

    operator: str
    homes: tuple[str, ...]  # group -> executor, in force
    where: tuple[str, ...]  # seat -> executor
    slots: int  # that it has
    load: Mapping[int, float] = field(default_factory=dict)  # group -> rows of the last epochs
    copies: Collection[Copy] = ()  # second copies that lack one epoch at most
    drained: frozenset[str] = frozenset()  # executors that get nothing any more

    def after(self, wishes: Sequence[Wish], slots: int, *, is_fixed: bool = False) -> tuple[tuple[str, ...], str]:
        """Grant the wishes of changes; return the homes, and which executors get nothing though one might expect it.

        Promised: a drain moves the groups of that executor and no others; another number of slots, as many groups as
        it takes for executors to have their shares, by number; a rebalance, those that make loads even; a move, those
        that it names. Executors that have a copy come first.

        Args:
            wishes: of one modification.
            slots: how many there will be.
            is_fixed: whether that number was asked for.
        """
        self._check(wishes)
        without = self.drained | {wish.without for wish in wishes if wish.without}
        dealing = Dealing(self.where, slots, self.load, without, self._near())
        after, told = self.homes, ""
        by_load = any(wish.by_load for wish in wishes)
        if by_load or slots != self.slots or any(not wish.to and not wish.without for wish in wishes):
            after = dealing.by_load(after) if by_load else dealing.by_number(after)
        elif any(wish.without for wish in wishes):
            after = dealing.homeless(after)
        if by_load:
            told = self._idle(after, slots, without, is_fixed=is_fixed)
        for wish in wishes:
            if wish.to:
                named = self._named(wish)
                after = tuple(wish.to if group in named else home for group, home in enumerate(after))
        return after, told

    def back_to(self, former: Sequence[str], slots: int) -> tuple[tuple[str, ...], str]:
        """Undo a modification; return the homes, and what cannot be as it was.

        Promised: groups go back to where they were. Those whose executor is gone stay where they are, unless an
        executor would have too many.
        """
        gone = Counter(home for home in former if home not in self.where or home in self.drained)
        if not gone:
            return tuple(former), ""
        now = {group: (home,) for group, home in enumerate(self.homes)}
        after = Dealing(self.where, slots, self.load, self.drained, now).homeless(former)
        told = f"executor {_listed(gone)} is gone: what it had of {self.operator!r}, {gone.total()} groups, is spread"
        return after, f"{told} over the others"

    def _near(self) -> dict[int, list[str]]:
        near = defaultdict[int, list[str]](list)
        for group, executor in sorted(self.copies):
            near[group].append(executor)
        return near

    def _idle(self, after: Sequence[str], slots: int, without: frozenset[str], *, is_fixed: bool) -> str:
        """Say which executors get no group, and why."""
        there = set(self.where) - without
        idle = there - set(after)
        if not idle:
            return ""
        told = f"executor {_listed(idle)} gets no group of {self.operator!r}"
        if is_fixed and slots < len(there):
            return (
                f"{told}, which has {slots} slots, as was asked for, on as many executors: "
                f"ms.rescale({self.operator!r}, slots={len(there)}) gives all {len(there)} a share"
            )
        return f"{told}: its rows are of too few groups for {len(there)} executors"

    def _named(self, wish: Wish) -> frozenset[int]:
        routing = seated(self.homes, self.where, self.slots)
        groups = frozenset(wish.groups) | {group for slot in wish.slots for group in routing.groups_of(slot)}
        if not groups or not 0 <= min(groups) <= max(groups) < len(self.homes):
            raise PlanError(
                f"operator {self.operator!r}: there are groups 0 to {len(self.homes) - 1}; job.slots lists its slots"
            )
        return groups

    def _check(self, wishes: Sequence[Wish]) -> None:
        known = sorted(set(self.where) - self.drained)
        for wish in wishes:
            for named in (wish.to, wish.without):
                if named and named not in known:
                    raise PlanError(
                        f"there is no executor {named!r} with a seat in this job; there are {', '.join(known)}"
                    )
        without = {wish.without for wish in wishes if wish.without}
        if without and not set(known) - without:
            raise PlanError(f"executor {_listed(without)} is the only one; add another before you drain it")


def _listed(executors: Collection[str]) -> str:
    return ", ".join(sorted(executors))
