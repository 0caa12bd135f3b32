"""A history of committed epochs, made without Spark: what the tests of caches and of housekeeping share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import home_of, log_directory
from midstream.checkpoint.records import Commit, LogRef, OperatorState, Report, SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.epoch.commit import epoch_of
from midstream.state.cache import Cache
from midstream.state.changelog import LogWriter
from midstream.state.history import Head, logs_of
from midstream.state.stores.contract import FIRST, LAST, GroupStore
from midstream.state.stores.kinds import DEFAULT

Changes = dict[bytes, bytes | None]
GROUPS = 3
HOME = home_of("sums", 0)


def contents(store: GroupStore) -> dict[bytes, bytes]:
    with store.reader() as reader:
        return dict(reader.scan(FIRST, LAST))


@dataclass
class History:
    """The committed epochs of an operator `sums` with three groups."""

    directory: Path
    commits: list[Commit] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)  # of each epoch
    store: str = DEFAULT

    @property
    def storage(self) -> Storage:
        return Storage(str(self.directory / "checkpoint"))

    def cache(self, host: str = "host", *, in_place: bool = False, recent: int = 2, epoch: int | None = None) -> Cache:
        """The cache of a host, as of the newest epoch or an older one."""
        commits = self.commits if epoch is None else self.commits[: epoch + 1]
        last = commits[-1] if commits else None
        head = Head(
            job="job",
            operator="sums",
            checkpoint=self.storage.root,
            cache=str(self.directory / host),
            epoch=last.epoch if last is not None else -1,
            changed=last.operators["sums"].changed if last is not None else (None,) * GROUPS,
            recent=tuple(logs_of(commit, "sums") for commit in commits[len(commits) - recent :]),
            in_place=in_place,
            store=self.store,
        )
        return Cache(head)

    def epoch(self, changes: dict[int, Changes], snapshots: tuple[int, ...] = (), host: str = "host") -> Commit:
        """Run and commit an epoch."""
        before = self.commits[-1] if self.commits else None
        known = before.operators["sums"] if before is not None else OperatorState()
        number, id = len(self.commits), os.urandom(4).hex()
        log, report, links = LogWriter(), Report(operator="sums", slot=0), list[tuple[int, int, int]]()
        changed, taken = list(known.changed or (None,) * GROUPS), list(known.snapshots or (None,) * GROUPS)
        for group, entries in changes.items():
            log.add(group, list(entries), list(entries.values()))
            links.append((group, len(entries), epoch_of(changed[group])))
            changed[group] = (number, id)
        for group in snapshots:
            found = self.cache(host).snapshot(group)
            assert found is not None
            taken[group] = found[1]
            report.snapshots.append((group, *msgspec.structs.astuple(found[1])))
        path = log.write(self.storage, log_directory(HOME, number, "run"), report)
        logs = (LogRef(0, path, 0, tuple(links)),)
        state = OperatorState(logs=logs, changed=tuple(changed), snapshots=tuple(taken))
        parent = before.id if before is not None else ""
        commit = Commit(epoch=number, id=id, parent=parent, version=1, clock=0, offsets=(), operators={"sums": state})
        Journal(self.storage).write_commit(commit)
        self.commits.append(commit)
        self.reports.append(report)
        return commit

    def forget(self, epochs: Iterable[int]) -> None:
        """Delete records and logs, as retention does."""
        for epoch in epochs:
            Journal(self.storage).forget(epoch)
            self.storage.delete(log_directory(HOME, epoch))

    def log_of(self, epoch: int) -> Path:
        return Path(self.storage.path(self.commits[epoch].operators["sums"].logs[0].path))

    def snapshot_of(self, group: int) -> SnapshotRef:
        found = self.commits[-1].operators["sums"].snapshots[group]
        assert found is not None
        return found
