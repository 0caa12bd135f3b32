"""The choice of an executor for each group of one operator, and what is worth reporting about it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from midstream.errors import PlanError
from midstream.placement.request import Wish
from midstream.placement.seats import Dealing, seated
from midstream.placement.standbys import Copy


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
