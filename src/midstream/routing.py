"""Which slot owns which group: a pure value, versioned with the plan."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_GROUPS = 128
MAX_GROUPS = 32_767  # group numbers are sorted as 16-bit integers


@dataclass(frozen=True, slots=True)
class Routing:
    """The owner of every group of one operator.

    Promised: every group has exactly one slot, and slot sizes differ by at most one after `even`.

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

    def groups_of(self, slot: int) -> tuple[int, ...]:
        """List the groups that a slot owns, in order."""
        return tuple(group for group, owner in enumerate(self.owners) if owner == slot)
