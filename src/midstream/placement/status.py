"""The status of slots, and of groups that move: for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SlotState(Enum):
    """What a slot does besides processing rows."""

    SERVING = "Serving"
    PREFETCHING = "Prefetching"  # it copies groups that it will own
    MOVING = "Moving"  # groups that it owns are about to leave
    RESTORING = "Restoring"  # it had to read groups from the durable store, or still reads them there
    LOST = "Lost"  # its executor is gone: another one did its last epoch


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """Where a slot is and what it does."""

    operator: str
    slot: int
    executor: str
    groups: int
    state: SlotState
    standbys: int = 0  # second copies of its groups that other executors have


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """How far the groups of an operator have come on their way to other executors."""

    operator: str
    strategy: str
    groups: int  # that move
    waiting: int  # of them, those that their old place still serves
    bytes: int  # that were copied
    bytes_to_go: int  # of the waiting ones, as their snapshots are
    seconds: float  # since it began
    differing: int = 0  # groups that differ on the new executor, which processes them beside the old one

    @property
    def seconds_to_go(self) -> float | None:
        """An estimate, from what has been moved so far; `None` while that is nothing."""
        moved = self.groups - self.waiting
        return self.seconds * self.waiting / moved if moved else None
