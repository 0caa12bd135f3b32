"""After the commit: choose snapshots, delete what no retained epoch needs — within a budget: no epoch is slow."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from midstream.checkpoint import layout
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import Commit, OperatorState, Report
from midstream.checkpoint.retention import changed_since_snapshot, gaps, needed, snapshots_due
from midstream.errors import CheckpointError


class Housekeeping:
    """Keeps a checkpoint small."""

    def __init__(self, journal: Journal, keep: int, budget: int) -> None:
        self.log_bytes = 0  # of the last epoch
        self.is_in_a_hurry = False  # every group that has changed is snapshotted, whatever that takes
        self._journal = journal
        self._storage = journal.storage
        self._keep = keep
        self._budget = budget
        self._logged: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # operator -> group -> entries
        self._snapshots: dict[str, dict[int, str]] = defaultdict(dict)  # operator -> group -> path of the newest
        self._doomed: deque[tuple[int, str]] = deque()  # (epoch after which to delete, path)
        self._epochs: list[int] = []  # whose records are there
        self._kept: deque[Commit] = deque(maxlen=max(keep, 1))  # the newest, each of which stays restorable
        self._aside: set[str] = set()  # directories of rows that were put aside
        self._forgotten: set[str] = set()  # where operators were that are forgotten
        self._runs: set[str] = set()  # what kept records name
        self._log_directories: set[str] = set()  # of epochs whose record is gone, while some of their runs are named
        self._pinned = 0  # savepoints under way: nothing is deleted meanwhile

    def pin(self) -> None:
        """Delete nothing until it is unpinned."""
        self._pinned += 1

    def unpin(self) -> None:
        """Allow deletions again."""
        self._pinned -= 1

    def forget(self, operator: str, born: int) -> None:
        """Know nothing of an operator any more, and delete its state as soon as nobody reads it."""
        self._logged.pop(operator, None)
        self._snapshots.pop(operator, None)
        self._forgotten.add(layout.home_of(operator, born))

    def snapshots_due(self, operator: str, state: OperatorState, epoch: int) -> list[int]:
        """Choose the groups to snapshot in an epoch."""
        if state.runs is not None:
            return []
        if self.is_in_a_hurry:
            return changed_since_snapshot(state)
        budget = self._budget + self.log_bytes // 4
        return snapshots_due(state, epoch, self._logged[operator], budget)

    def discard(self, path: str, epoch: int) -> None:
        """Delete what no record up to an epoch names.

        Where there is no lease, once this driver has committed the epoch after it: until then another driver may be
        about to commit that epoch, with these files.
        """
        if self._storage.is_local:
            self._storage.delete(path)
        else:  # what is there now, file by file: the epoch after it may write into the same directories
            self._doomed.extendleft((epoch + 1, file) for file in self._files(path))

    def _files(self, path: str) -> Iterator[str]:
        names = self._storage.list(path)
        for name in names:
            yield from self._files(f"{path}/{name}")
        if not names:
            yield path

    def drop_logs(self, homes: Iterable[str], epoch: int) -> None:
        """Delete the change logs of an epoch that is run again; where there is no lease a start does it.

        Another driver may have committed the epoch, with logs that lie beside these.
        """
        if self._storage.is_local:
            for home in homes:
                self._storage.delete(layout.log_directory(home, epoch))

    def after(self, commit: Commit, reports: dict[str, list[Report]]) -> None:
        """Tidy up after an epoch."""
        self.log_bytes = 0
        for operator, found in reports.items():
            for report in found:
                each = report.bytes / max(sum(changes for _, changes in report.groups), 1)  # bytes of a change
                for group, changes in report.groups:
                    self._logged[operator][group] += round(changes * each)
                self.log_bytes += report.bytes
                for group, _, _, path, _, _ in report.snapshots:
                    self._logged[operator][group] = 0
                    before = self._snapshots[operator].get(group)
                    if before is not None:
                        self._doomed.append((commit.epoch + self._keep, before))
                    self._snapshots[operator][group] = path
        while self._doomed and not self._pinned and self._doomed[0][0] <= commit.epoch:
            self._storage.delete(self._doomed.popleft()[1])
        self._forget(commit)

    def _forget(self, commit: Commit) -> None:
        self._epochs.append(commit.epoch)
        self._kept.append(commit)
        if self._pinned:
            return
        for home in self._forgotten:
            self._delete_home(home)
        self._forgotten.clear()
        kept = [state for commit in self._kept for state in commit.operators.values()]
        named = {each.path.rsplit("/", 2)[0] for state in kept for each in state.backlog}  # one directory an epoch
        for directory in self._aside - named:
            self._storage.delete(directory)
        self._aside = named
        ranges = needed(self._kept)
        gone = [e for e in self._epochs if not any(first <= e <= last for first, last in ranges)]
        for epoch in gone:
            for operator, state in commit.operators.items():
                directory = layout.log_directory(layout.home_of(operator, state.born), epoch)
                if state.runs is None:
                    self._storage.delete(directory)
                else:
                    self._log_directories.add(directory)
            self._journal.forget(epoch)
            self._epochs.remove(epoch)
        self._forget_runs(kept)

    def _forget_runs(self, kept: Iterable[OperatorState]) -> None:
        """Delete the runs that no kept record names any more."""
        named = {run.path for state in kept for run in state.runs or ()}
        for path in self._runs - named:
            self._storage.delete(path)
        self._runs = named
        for directory in self._log_directories - {path.rsplit("/", 2)[0] for path in named}:
            self._storage.delete(directory)
            self._log_directories.discard(directory)

    def _delete_home(self, home: str) -> None:
        directory = layout.state_directory(home)
        self._storage.delete(directory)
        if not self._storage.list(parent := directory.rsplit("/", 1)[0]):
            self._storage.delete(parent)

    def sweep(self, commit: Commit) -> None:
        """After a restart: delete what no record names — runs that never committed, snapshots nobody counts.

        Nothing is deleted before the records are known to be one history: of one that lacks a record, the change logs
        which that record names would go.
        """
        records = self._take_up_records()
        for directory in (layout.COMMITS, layout.JOURNAL):
            for name in self._storage.list(directory):
                if name.endswith(".tmp"):
                    self._storage.delete(f"{directory}/{name}")
        states = [state for record in records for state in record.operators.values()]
        self._aside.update(each.path.rsplit("/", 2)[0] for state in states for each in state.backlog)
        named = {log.path for state in states for log in state.logs}
        named |= {snapshot.path for state in states for snapshot in state.snapshots if snapshot is not None}
        self._runs = {run.path for state in states for run in state.runs or ()}
        named |= self._runs
        homes = {operator: layout.home_of(operator, state.born) for operator, state in commit.operators.items()}
        for operator in self._storage.list(layout.STATE):
            for born in self._storage.list(f"{layout.STATE}/{operator}"):
                if f"{operator}/{born}" != homes.get(operator):
                    self.discard(layout.state_directory(f"{operator}/{born}"), commit.epoch)
        for operator, home in homes.items():
            self._sweep_logs(home, commit.epoch, named)
            merged = layout.run_directory(home)
            for path in (f"{merged}/{name}" for name in self._storage.list(merged)):
                if path not in named:
                    self.discard(path, commit.epoch)
            self._sweep_snapshots(operator, commit, named)

    def _take_up_records(self) -> list[Commit]:
        self._epochs = self._journal.epochs()
        records = [self._journal.commit(epoch) for epoch in self._epochs]
        if wrong := gaps(records):
            raise CheckpointError(
                f"the history in {self._storage.path(layout.COMMITS)} is not whole: {'; '.join(wrong)}. Restore the "
                "checkpoint from a copy, all of it, or start from a savepoint"
            )
        self._kept.extend(records)
        return records

    def _sweep_logs(self, home: str, epoch: int, named: set[str]) -> None:
        """Delete the change logs of an operator, and the rows that it has put aside, that no record names."""
        root, aside = layout.log_directory(home, 0).rsplit("/", 1)[0], layout.backlog_directory(home)
        of_runs = {path.rsplit("/", 2)[0] for path in self._runs}
        for directory in (f"{root}/{name}" for name in self._storage.list(root)):
            if directory in of_runs and layout.epoch_of(directory.rsplit("/", 1)[1]) not in self._epochs:
                self._log_directories.add(directory)
            for run in (f"{directory}/{name}" for name in self._storage.list(directory)):
                for log in (f"{run}/{name}" for name in self._storage.list(run)):
                    if log not in named:
                        self.discard(log, epoch)
        for rows in (f"{aside}/{name}" for name in self._storage.list(aside)):
            if rows not in self._aside:
                self.discard(rows, epoch)

    def _sweep_snapshots(self, operator: str, commit: Commit, named: set[str]) -> None:
        """Delete the snapshots of an operator that no record names, and those that are not the newest in time."""
        state = commit.operators[operator]
        for group, newest in enumerate(state.snapshots):
            if newest is not None:
                self._snapshots[operator][group] = newest.path
            directory = layout.snapshot_directory(layout.home_of(operator, state.born), group)
            for path in (f"{directory}/{name}" for name in self._storage.list(directory)):
                if path not in named:
                    self.discard(path, commit.epoch)
                elif newest is None or path != newest.path:
                    self._doomed.append((commit.epoch + self._keep, path))
