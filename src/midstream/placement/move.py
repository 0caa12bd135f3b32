"""One operator's groups on their way to other executors: a pure value, advanced by what each epoch reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from midstream.placement.strategies.contract import Moving, Step, Strategy

_PATIENCE = 5  # epochs in which two executors may differ in a group


@dataclass(frozen=True, slots=True)
class Move:
    """Where groups go, and how far they have come."""

    target: tuple[str, ...]  # group -> executor
    strategy: Strategy
    waiting: frozenset[int]  # groups that their old executor still serves
    total: int  # groups that move
    ready: frozenset[int] = frozenset()  # of the waiting, those whose copy on the new executor lacks one epoch at most
    agreed: frozenset[int] = frozenset()  # of these, those for which both executors had equal results
    differing: int = 0  # groups for which they had not
    tried: int = 0  # epochs in a row that both executors have processed with results that differ
    stayed: frozenset[int] = frozenset()  # groups that stay because of that
    left: tuple[tuple[int, str], ...] = ()  # (group, executor): copies that are no longer needed
    in_place: int = 0  # groups that are still read where they are stored
    bytes: int = 0  # copied so far
    has_begun: bool = False

    @classmethod
    def begun(
        cls,
        homes: Sequence[str],
        target: Sequence[str],
        strategy: Strategy,
        standing: Collection[tuple[int, str]] = (),
    ) -> Move:
        """Begin a move; `standing`: (group, executor) of second copies, which lack one epoch at most.

        >>> from midstream.placement.strategies.live import Live
        >>> Move.begun(["a", "a"], ["a", "b"], Live()).waiting
        frozenset({1})
        """
        waiting = frozenset(group for group, home in enumerate(homes) if home != target[group])
        ready = frozenset(group for group in waiting if (group, target[group]) in standing)
        return cls(tuple(target), strategy, waiting, len(waiting), ready)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.has_begun and not self.waiting and not self.left and not self.in_place

    def step(self, load: Mapping[int, float]) -> Step:
        """Return what happens in the next epoch: the same on every call, until the epoch is committed."""
        if not self.waiting:
            return Step()
        ordered = sorted(self.waiting, key=lambda group: (-load.get(group, 0.0), group))
        return self.strategy.step(Moving(tuple(ordered), self.ready, self.agreed))

    def after(self, step: Step, homes: Sequence[str], outcome: MoveReport) -> Move:
        """Advance after an epoch that was committed.

        Args:
            step: what the epoch has done.
            homes: group -> executor, before it.
            outcome: what its tasks reported.
        """
        different = step.both - frozenset(outcome.agreed)
        tried = self.tried + 1 if different else 0
        given_up = different if tried >= _PATIENCE else frozenset[int]()
        waiting = self.waiting - step.flip - given_up
        waiting -= {group for group in waiting if self.target[group] not in outcome.executors}  # nowhere to go
        useless = [*((g, homes[g]) for g in sorted(step.flip)), *((g, self.target[g]) for g in sorted(given_up))]
        left = tuple((group, executor) for group, executor in useless if executor in outcome.executors)
        return replace(
            self,
            waiting=waiting,
            ready=frozenset(outcome.fetched) & waiting,
            agreed=frozenset(outcome.agreed) & waiting,
            differing=len(different),
            tried=tried,
            stayed=self.stayed | given_up,
            left=left,
            in_place=outcome.in_place if not self.strategy.copies_first else 0,
            bytes=self.bytes + outcome.bytes,
            has_begun=True,
        )


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What the tasks of an operator reported about its move in an epoch."""

    executors: frozenset[str]  # that have a seat
    fetched: Iterable[int] = ()
    agreed: Iterable[int] = ()  # groups for which the old and the new executor had equal results
    in_place: int = 0
    bytes: int = 0
    seconds: float = field(default=0.0)
