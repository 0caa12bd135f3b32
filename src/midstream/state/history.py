"""The committed history of one operator, as a task sees it: which change logs lead from a copy of a group to its head.

Every change of a group names the epoch of the change before it. So a copy is brought to the head by exactly the logs
that lead there, and a record that is gone is noticed where a group needs it, never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import commit_file, home_of
from midstream.checkpoint.records import NEVER, Commit, Deferred, OperatorState, RunRef, SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.state.stores.contract import Version
from midstream.state.stores.kinds import DEFAULT


class LogsOf(NamedTuple):
    """The change logs that one committed epoch wrote for one operator."""

    epoch: int
    commit: str
    logs: tuple[tuple[str, dict[int, int]], ...]  # path, group -> epoch of its change before


@dataclass(frozen=True, slots=True)
class Head:
    """Where the committed history of one operator stands; shipped with every task."""

    job: str
    operator: str
    checkpoint: str
    cache: str
    epoch: int  # of the newest commit record, -1 for none
    changed: tuple[tuple[int, str] | None, ...]  # group -> (epoch, commit) of its last change
    born: int = 0  # the first epoch that had the operator
    runs: tuple[RunRef, ...] = ()  # in a store of runs: what the state is, the newest first
    recent: tuple[LogsOf, ...] = ()  # the newest epochs, oldest first; older ones are read from the store
    backlog: tuple[Deferred, ...] = ()  # rows that wait for the state of their group, oldest epoch first
    in_place: bool = False  # open snapshots in place instead of copying them
    throw_away: bool = False  # there is no state, and none is kept: a dry run
    bytes_per_second: int = 0  # snapshots are read no faster; 0: no limit
    store: str = DEFAULT  # the kind of store that the groups are kept in
    apart: bool = False  # each executor has a cache of its own: on a cluster, also where several share a host

    @property
    def home(self) -> str:
        """Where the operator keeps its state, in the durable store and in caches alike."""
        return home_of(self.operator, self.born)


@dataclass(slots=True)
class History:
    """What is committed for one operator, read when needed and once."""

    head: Head
    _known: dict[int, LogsOf | None] = field(default_factory=dict)  # epoch -> its logs, None: its record is gone
    _snapshots: tuple[SnapshotRef | None, ...] | None = None  # as the newest record names them

    def __post_init__(self) -> None:
        self._known.update((epoch.epoch, epoch) for epoch in self.head.recent)

    def since(self, group: int, version: Version | None) -> list[str] | None:
        """List the change logs that lead from a version of a group to its head; `None` if none do.

        Then the version is of another history, or older than what is kept, and the group must be restored.
        """
        wanted = self.head.changed[group]
        if wanted is None:
            return [] if version is None else None
        if version is not None and version.job != self.head.job:
            return None
        at, commit, paths = wanted[0], wanted[1], list[str]()
        while version is None or at > version.epoch:
            if at == NEVER:
                return paths[::-1] if version is None else None
            logs = self._logs_of(at)
            path = next((path for path, groups in logs.logs if group in groups), "") if logs is not None else ""
            if logs is None or not path or (at == wanted[0] and logs.commit != commit):
                return None
            paths.append(path)
            at = next(groups[group] for _, groups in logs.logs if group in groups)
        return paths[::-1] if at == version.epoch and self._is_of(version, group) else None

    def snapshot_of(self, group: int) -> SnapshotRef | None:
        """Return the newest snapshot of a group, if it has one."""
        if self._snapshots is None:
            self._snapshots = ()
            if self.head.epoch >= 0:
                newest = Journal(Storage(self.head.checkpoint)).commit(self.head.epoch)
                self._snapshots = newest.operators.get(self.head.operator, OperatorState()).snapshots
        return self._snapshots[group] if self._snapshots else None

    def _is_of(self, version: Version, group: int) -> bool:
        """Whether a version is one of this history; its record may be gone, if it is that of the snapshot."""
        if (version.epoch, version.commit) == self.head.changed[group]:
            return True
        at: LogsOf | SnapshotRef | None = self._logs_of(version.epoch) or self.snapshot_of(group)
        return at is not None and (at.epoch, at.commit) == (version.epoch, version.commit)

    def _logs_of(self, epoch: int) -> LogsOf | None:
        if epoch not in self._known:
            storage = Storage(self.head.checkpoint)
            is_there = storage.exists(commit_file(epoch))
            self._known[epoch] = logs_of(Journal(storage).commit(epoch), self.head.operator) if is_there else None
        return self._known[epoch]


def logs_of(commit: Commit, operator: str) -> LogsOf:
    """Extract what a commit record says of one operator's logs."""
    state = commit.operators.get(operator, OperatorState())
    return LogsOf(
        commit.epoch,
        commit.id,
        tuple((log.path, {group: before for group, _, before in log.groups}) for log in state.logs),
    )
