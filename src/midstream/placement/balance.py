"""Balancing: groups are assigned by number or by load, and no more change their owner than that takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeVar

from midstream.plan.routing import Routing

T = TypeVar("T", int, str)

_TOLERANCE = 0.05  # of the fair load: less is not worth a move


def resized(routing: Routing, slots: int, load: Mapping[int, float] | None = None) -> Routing:
    """Spread the groups over another number of slots, so that the fewest change their slot; see `fair`.

    >>> resized(Routing((0, 0, 0, 1, 1, 1), 2), 3).owners
    (0, 0, 2, 1, 1, 2)
    """
    groups = len(routing.owners)
    if not 1 <= slots <= groups:
        raise ValueError(f"slots must lie between 1 and the number of groups ({groups}), not {slots}")
    return Routing(fair(routing.owners, dict.fromkeys(range(slots), 1), load), slots)


def fair(
    owners: Sequence[T],
    shares: Mapping[T, int],
    load: Mapping[int, float] | None = None,
    near: Mapping[int, Collection[T]] | None = None,
) -> tuple[T, ...]:
    """Assign groups by the shares of their owners.

    Promised: the number of groups of each is as its share says, to within one, and no more groups change their owner
    than that takes. Which ones change is chosen so that the loads are as even as possible; their new owners, by who
    has a copy, and then by load too.

    >>> fair([0, 0, 0, 1, 1, 1], {0: 1, 1: 1, 2: 1})
    (0, 0, 2, 1, 1, 2)
    >>> fair(["a", "a", "a", "b"], {"a": 1, "b": 1}, {0: 5.0, 1: 1.0, 2: 1.0, 3: 3.0})
    ('a', 'a', 'b', 'b')

    Args:
        owners: index: group, value: its owner, who may be gone.
        shares: how much each future owner can do.
        load: how much work each group is; all the same where nothing is known.
        near: the other owners that a group would cost least: those that have a copy of it.
    """
    load = load or {}
    held, free = _held(owners, shares)
    quota = _quotas(len(owners), shares, held)
    whole, parts = sum(load.values()), sum(shares.values())
    for owner, mine in held.items():
        surplus = len(mine) - quota[owner]
        if surplus > 0:
            too_much = _sum(mine, load) - whole * shares[owner] / parts
            given = _window(mine, surplus, too_much, load)
            free += given
            held[owner] = [group for group in mine if group not in given]
    room = {owner: quota[owner] - len(mine) for owner, mine in held.items()}
    return _dealt(owners, shares, held, free, room, load, near or {})


def adopted(
    owners: Sequence[T],
    shares: Mapping[T, int],
    load: Mapping[int, float] | None = None,
    near: Mapping[int, Collection[T]] | None = None,
) -> tuple[T, ...]:
    """Assign the groups of owners that are gone, and no others; arguments as those of `fair`.

    Promised: no remaining owner loses a group, and the numbers are as even as that allows.

    >>> adopted(["a", "a", "gone", "gone", "gone", "b"], {"a": 1, "b": 1})
    ('a', 'a', 'a', 'b', 'b', 'b')
    >>> adopted(["gone", "gone", "a", "b"], {"a": 1, "b": 1}, near={0: ["b"], 1: ["a"]})
    ('b', 'a', 'a', 'b')
    """
    held, free = _held(owners, shares)
    room = dict.fromkeys(shares, 0)
    fullness = [(len(held[owner]) / share, number, owner) for number, (owner, share) in enumerate(shares.items())]
    heapify(fullness)
    for _ in free:
        full, number, owner = fullness[0]
        room[owner] += 1
        heapreplace(fullness, (full + 1 / shares[owner], number, owner))
    return _dealt(owners, shares, held, free, room, load or {}, near or {})


def even(
    owners: Sequence[T],
    shares: Mapping[T, int],
    load: Mapping[int, float],
    near: Mapping[int, Collection[T]] | None = None,
) -> tuple[T, ...]:
    """Assign groups by their load alone: move one at a time from the most to the least loaded owner, while that helps.

    Where no load is known the number of groups counts. Arguments as those of `fair`.

    >>> even(["a", "a", "b", "b"], {"a": 1, "b": 1}, {0: 9.0, 1: 4.0, 2: 2.0, 3: 1.0})
    ('a', 'b', 'b', 'b')
    """
    whole, parts = sum(load.values()), sum(shares.values())
    if not whole:
        return fair(owners, shares, load, near)
    dealt = list(adopted(owners, shares, load, near))
    for _ in range(len(dealt)):
        excess = {
            owner: _sum([g for g, o in enumerate(dealt) if o == owner], load) / share - whole / parts
            for owner, share in shares.items()
        }
        most, least = max(shares, key=lambda owner: excess[owner]), min(shares, key=lambda owner: excess[owner])
        gap = (excess[most] - excess[least]) / 2
        movable = [g for g, o in enumerate(dealt) if o == most and 0 < load.get(g, 0.0) < 2 * gap]
        if gap <= _TOLERANCE * whole / parts or not movable:
            break
        dealt[min(movable, key=lambda group: abs(load[group] - gap))] = least
    return tuple(dealt)


def _held(owners: Sequence[T], shares: Mapping[T, int]) -> tuple[dict[T, list[int]], list[int]]:
    """The groups of each owner, and those of owners that are gone."""
    held: dict[T, list[int]] = {owner: [] for owner in shares}
    free: list[int] = []
    for group, owner in enumerate(owners):
        held.get(owner, free).append(group)
    return held, free


def _dealt(
    owners: Sequence[T],
    shares: Mapping[T, int],
    held: Mapping[T, Sequence[int]],
    free: Sequence[int],
    room: dict[T, int],
    load: Mapping[int, float],
    near: Mapping[int, Collection[T]],
) -> tuple[T, ...]:
    """Assign free groups to owners that have room: those with a copy first, the heaviest to the least loaded."""
    whole, parts, dealt = sum(load.values()), sum(shares.values()), list(owners)
    lacking = {owner: whole * share / parts - _sum(held[owner], load) for owner, share in shares.items()}
    waiting = sorted(free, key=lambda group: (-load.get(group, 0.0), group))
    for has_copy in (True, False):
        left = []
        for group in waiting:
            known = near.get(group, ()) if has_copy else shares
            takers = [owner for owner in shares if room[owner] > 0 and owner in known]
            if not takers:
                left.append(group)
                continue
            taker = max(takers, key=lambda owner: lacking[owner])
            dealt[group] = taker
            room[taker] -= 1
            lacking[taker] -= load.get(group, 0.0)
        waiting = left
    return tuple(dealt)


def _quotas(groups: int, shares: Mapping[T, int], held: Mapping[T, list[int]]) -> dict[T, int]:
    """How many groups each gets; the remainder goes to those that have most: so fewest move."""
    parts = sum(shares.values())
    quota = {owner: groups * share // parts for owner, share in shares.items()}
    over = {owner: len(held[owner]) - quota[owner] for owner in shares}
    for owner in sorted(shares, key=lambda owner: -over[owner])[: groups - sum(quota.values())]:
        quota[owner] += 1
    return quota


def _window(groups: list[int], size: int, wanted: float, load: Mapping[int, float]) -> list[int]:
    """Groups, neighbours in load, whose load together is nearest to what is wanted; of equal ones the last."""
    ordered = sorted(groups, key=lambda group: (load.get(group, 0.0), group))
    starts = range(len(ordered) - size, -1, -1)
    start = min(starts, key=lambda at: abs(_sum(ordered[at : at + size], load) - wanted))
    return ordered[start : start + size]


def _sum(groups: Sequence[int], load: Mapping[int, float]) -> float:
    return sum(load.get(group, 0.0) for group in groups)
