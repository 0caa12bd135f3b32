"""Who owns which group, dealt out anew: the fewest groups change their owner, and what each has to do is even. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", int, str)

_TOLERANCE = 0.05  # of the fair load: what is not worth a move


def fair(owners: Sequence[T], shares: Mapping[T, int], load: Mapping[int, float] | None = None) -> tuple[T, ...]:
    """Deal groups out by the shares of their owners.

    Promised: the number of groups of each is as its share says, to within one, and no more groups change their owner
    than that takes. Which ones change is chosen so that the loads come out as even as they can.

    >>> fair([0, 0, 0, 1, 1, 1], {0: 1, 1: 1, 2: 1})
    (0, 0, 2, 1, 1, 2)
    >>> fair(["a", "a", "a", "b"], {"a": 1, "b": 1}, {0: 5.0, 1: 1.0, 2: 1.0, 3: 3.0})
    ('a', 'a', 'b', 'b')

    Args:
        owners: index: group, value: its owner, who may be gone.
        shares: how much each owner of the future can do.
        load: how much work each group is; all the same where nothing is known.
    """
    load = load or {}
    held: dict[T, list[int]] = {owner: [] for owner in shares}
    free: list[int] = []
    for group, owner in enumerate(owners):
        held.get(owner, free).append(group)
    quota = _quotas(len(owners), shares, held)
    whole, parts = sum(load.values()), sum(shares.values())
    for owner, mine in held.items():
        surplus = len(mine) - quota[owner]
        if surplus > 0:
            too_much = sum(load.get(group, 0.0) for group in mine) - whole * shares[owner] / parts
            given = _window(mine, surplus, too_much, load)
            free += given
            held[owner] = [group for group in mine if group not in given]
    dealt = list(owners)
    lacking = {owner: whole * shares[owner] / parts - _sum(held[owner], load) for owner in held}
    room = {owner: quota[owner] - len(mine) for owner, mine in held.items()}
    for group in sorted(free, key=lambda group: (-load.get(group, 0.0), group)):
        takers = [owner for owner in held if room[owner] > 0]
        taker = max(takers, key=lambda owner: lacking[owner])
        dealt[group] = taker
        room[taker] -= 1
        lacking[taker] -= load.get(group, 0.0)
    return tuple(dealt)


def even(owners: Sequence[T], shares: Mapping[T, int], load: Mapping[int, float]) -> tuple[T, ...]:
    """Deal groups out by their load alone: move one at a time from who has most to who has least, while that helps.

    >>> even(["a", "a", "b", "b"], {"a": 1, "b": 1}, {0: 9.0, 1: 4.0, 2: 2.0, 3: 1.0})
    ('a', 'b', 'b', 'b')
    """
    dealt = list(fair(owners, shares, load) if any(owner not in shares for owner in owners) else owners)
    whole, parts = sum(load.values()), sum(shares.values())
    if not whole:
        return fair(dealt, shares, load)
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


def _quotas(groups: int, shares: Mapping[T, int], held: Mapping[T, list[int]]) -> dict[T, int]:
    """How many groups each gets; what does not divide goes to those who have most: they give away least."""
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
