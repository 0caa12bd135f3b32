"""The contract of strategies: a strategy only says what happens next, epoch by epoch, to groups that move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moving:
    """Where a move stands before an epoch."""

    waiting: tuple[int, ...]  # groups that their old executor still serves, those with most rows first
    ready: frozenset[int] = frozenset()  # of them, those whose copy on the new executor lacks one epoch at most
    agreed: frozenset[int] = frozenset()  # of these, those for which both executors had equal results


@dataclass(frozen=True, slots=True)
class Step:
    """What happens in an epoch."""

    flip: frozenset[int] = frozenset()  # groups that the new executor serves from this epoch on
    fetch: tuple[int, ...] = ()  # groups that the new executor copies beside its work, in this order, within the budget
    both: frozenset[int] = frozenset()  # groups whose rows the new executor processes too; its results do not count


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """Decides which groups move in which epoch. The engine promises to call `step` once per epoch until none waits."""

    @property
    def copies_first(self) -> bool:
        """Whether a group that flips is copied whole before rows are processed; otherwise as it is needed."""
        return True

    @property
    def starts_afresh(self) -> bool:
        """Whether every executor drops all it has, and the query is stopped and started again."""
        return False

    @abstractmethod
    def step(self, moving: Moving) -> Step:
        """Say what happens in the next epoch."""

    def __str__(self) -> str:
        return type(self).__name__
