"""The committed history of a job, as far as the next epoch needs it, and the operators that it is to forget."""

from __future__ import annotations

from collections import deque

from midstream.checkpoint import layout
from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, Intent, OperatorState
from midstream.epoch.beginning import Beginning
from midstream.operators.resolved import Resolved

_RECENT = 8  # epochs whose logs are shipped with the tasks


class History:
    """The newest commit records."""

    def __init__(self, journal: Journal, housekeeping: Housekeeping, groups: int) -> None:
        self._journal, self._housekeeping, self._groups = journal, housekeeping, groups
        self._recent: deque[Commit] = deque(maxlen=_RECENT)
        self._forgotten: dict[str, int] = {}  # removed operator -> its birth; its state goes with the next epoch
        self._forgetting: frozenset[str] = frozenset()  # operators whose state goes with the epoch at hand

    @property
    def last(self) -> Commit | None:
        """The newest record, `None` before the first epoch."""
        return self._recent[-1] if self._recent else None

    @property
    def recent(self) -> tuple[Commit, ...]:
        """The newest records, oldest first."""
        return tuple(self._recent)

    @property
    def next_epoch(self) -> int:
        """The number of the next epoch."""
        return self._recent[-1].epoch + 1 if self._recent else 0

    @property
    def offsets(self) -> tuple[str, ...]:
        """Where the sources stand."""
        return self._recent[-1].offsets if self._recent else ()

    @property
    def states(self) -> dict[str, OperatorState]:
        """What is known of keyed operators, also of those that were removed, but for those that are forgotten."""
        return {id: state for id, state in self._operators.items() if self._forgotten.get(id) != state.born}

    @property
    def forgotten(self) -> dict[str, int]:
        """The removed operators whose state goes with the next epoch, each with the epoch of its birth."""
        return dict(self._forgotten)

    @property
    def forgetting(self) -> frozenset[str]:
        """The operators whose state goes with the epoch at hand."""
        return self._forgetting

    @property
    def _operators(self) -> dict[str, OperatorState]:
        return self._recent[-1].operators if self._recent else {}

    def take_up(self) -> None:
        """Go on from what is committed; delete what no record names."""
        last = self._journal.newest_commit()
        if last is None:
            return
        self._housekeeping.sweep(last)
        self._forgotten = self._journal.forgotten()
        for epoch in range(max(last.epoch - _RECENT + 1, 0), last.epoch):
            if self._journal.storage.exists(layout.commit_file(epoch)):
                self._recent.append(self._journal.commit(epoch))
        self._recent.append(last)

    def begin_epoch(self) -> None:
        """Fix what the epoch at hand is to forget: what is asked for from now on goes with the next one."""
        self._forgetting = frozenset(self._operators.keys() - self.states.keys())

    def beginning(self, intent: Intent, resolved: Resolved, *, final: bool) -> Beginning:
        """Return what the epoch at hand begins with."""
        return Beginning(self.last, intent, resolved, self._groups, self._forgetting, final)

    def append(self, commit: Commit) -> None:
        """Add the record of an epoch that was committed."""
        self._recent.append(commit)

    def born(self, id: str, epoch: int) -> int:
        """Return the first epoch that has a keyed operator, as the epoch at hand sees it."""
        known = self._operators
        return known[id].born if id in known and id not in self._forgetting else epoch

    def forget(self, id: str, born: int) -> None:
        """Drop the state of a removed operator with the next epoch, also if the driver is killed before it."""
        self._forgotten = {**self._forgotten, id: born}
        self._journal.write_forgotten(self._forgotten)

    def end_epoch(self) -> None:
        """Drop what the newest record has left out."""
        if self._forgetting:
            for id in self._forgetting:
                self._housekeeping.forget(id, self._forgotten[id])
            self._forgotten = {id: born for id, born in self._forgotten.items() if id not in self._forgetting}
            self._journal.write_forgotten(self._forgotten)
            self._forgetting = frozenset()
