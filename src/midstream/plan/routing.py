"""Routing: which slot owns which group, a pure value, versioned with the plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import count

DEFAULT_GROUPS = 128
MAX_GROUPS = 32_767  # group numbers are sorted as 16-bit integers


@dataclass(frozen=True, slots=True)
class Routing:
    """The owner of every group of one operator.

    Promised: every group has exactly one slot, and slot sizes differ by at most one after `even` and `balance.resized`.

    >>> Routing.even(groups=5, slots=2).owners
    (0, 1, 0, 1, 0)
    """

    owners: tuple[int, ...]  # index: group, value: slot
    slots: int

    @classmethod
    def even(cls, groups: int, slots: int) -> Routing:
        """Spread the groups over the slots in turn."""
        if not 1 <= slots <= groups:
            raise ValueError(f"slots must lie between 1 and the number of groups ({groups}), not {slots}")
        return cls(tuple(group % slots for group in range(groups)), slots)

    def moved(self, after: Routing) -> tuple[int, ...]:
        """List the groups that have another slot under another routing."""
        return tuple(group for group, owner in enumerate(self.owners) if after.owners[group] != owner)

    def groups_of(self, slot: int) -> tuple[int, ...]:
        """List the groups that a slot owns, in order."""
        return tuple(group for group, owner in enumerate(self.owners) if owner == slot)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return the number of each slot in a shuffle: Spark's hash sends each to a partition of its own."""
        return tokens(self.slots)


@lru_cache(maxsize=64)
def tokens(slots: int) -> tuple[int, ...]:
    """Find for each slot the least integer that Spark's hash partitioning sends to the partition of its number.

    >>> tokens(3)
    (0, 1, 11)
    """
    found: dict[int, int] = {}
    for token in count():
        found.setdefault(spark_hash(token) % slots, token)
        if len(found) == slots:
            return tuple(found[slot] for slot in range(slots))
    raise AssertionError("unreachable")


def spark_hash(value: int) -> int:
    """Hash an `int` as Spark does when it partitions by one: Murmur3 of 32 bits, with the seed 42.

    >>> spark_hash(1)
    -559580957
    """
    mask = 0xFFFFFFFF
    mixed = value * 0xCC9E2D51 & mask
    mixed = _rotated(mixed, 15) * 0x1B873593 & mask
    hashed = _rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & mask
    hashed ^= 4  # the length in bytes
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & mask
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & mask
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
