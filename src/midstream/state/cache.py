"""The local cache of a host, and the one step that is recovery, migration and catching up alike.

`bring` takes a group to the head of the committed history: it applies the change logs that the cached copy lacks,
or, where the cached copy is missing, of another job, another history or damaged, restores the newest snapshot and
applies the logs after it. A cached copy is never trusted by its epoch number alone: commit ids must agree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from midstream.checkpoint.records import SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state.budget import Budget
from midstream.state.changelog import Latest, Log
from midstream.state.copies import Copies
from midstream.state.history import Head, History
from midstream.state.location import boot_id, executor_cache
from midstream.state.snapshots import Snapshots
from midstream.state.stores.contract import Changes, GroupStore, InPlaceStore, Version
from midstream.state.stores.kinds import store_kind
from midstream.state.stores.memory import MemoryStore
from midstream.state.stores.pending import Entries, PendingStore
from midstream.state.throttle import Throttle

_STREAMS = 4  # snapshots that are copied at a time, where all of them must come
_DAMAGE = (StateError, OSError, ValueError)


@dataclass(slots=True)
class Cache:
    """The cached groups of one operator on this host, as one task sees them."""

    head: Head
    lazy: bool = False  # groups that are not here are read where they are stored, if that can be
    budget: Budget = field(default_factory=lambda: Budget(0, 0.0))  # for what is copied beside the work
    accessed: int = 0
    restored: int = 0
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)  # group -> entries, bytes
    history: History = field(init=False)
    copies: Copies = field(init=False)  # on this host
    snapshots: Snapshots = field(init=False)  # in the durable store
    pending: dict[int, Entries] = field(default_factory=dict)  # group -> what this epoch has changed in it so far
    _coming: dict[int, Future[tuple[str, GroupStore]]] = field(default_factory=dict)  # group -> its copy, as it is made
    _logs: dict[str, Log] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.head)
        root = executor_cache(self.head.cache) if self.head.apart else self.head.cache
        directory = os.path.join(root, self.head.job, boot_id(), self.head.home)
        kind, throttle = store_kind(self.head.store), Throttle(self.head.bytes_per_second)
        self.copies = Copies(directory, kind, throttle)
        self.snapshots = Snapshots(Storage(self.head.checkpoint), self.head.home, kind.format, throttle)

    @property
    def reads_there(self) -> bool:
        """Whether groups that are not here are read where they are stored: on a file system, by a store that can."""
        wanted = self.head.in_place or self.lazy
        return wanted and self.copies.kind.reads_in_place and self.snapshots.storage.is_local

    def must_come(self, group: int) -> bool:
        """Whether a group has to be read from the store, there or into a copy, to be looked into."""
        is_there = self.copies.is_whole if self.reads_there else self.lacks_logs_only  # the second looks into the copy
        return self.head.changed[group] is not None and not is_there(group)

    def is_whole(self, group: int) -> bool:
        """Whether all of a group is in a copy that is here, or there is nothing of it."""
        return self.head.changed[group] is None or self.copies.is_whole(group)

    def drop(self, group: int) -> None:
        """Drop the copy of a group."""
        self.copies.drop(group)

    def lacks_logs_only(self, group: int) -> bool:
        """Whether there is a copy of a group that change logs can bring to the head, and not one of other days."""
        try:
            store = self.copies.opened(group)
            version = store.version() if store is not None else None
        except _DAMAGE:
            return False
        return version is not None and self.history.since(group, version) is not None

    def stored(self, group: int) -> str | None:
        """The snapshot that a group is, or would be, read from where it lies; `None` if there is none."""
        under = self.copies.snapshot_under(group)
        reference = self.history.snapshot_of(group) if under is None else None
        return self.snapshots.path(reference) if reference is not None else under

    def view(self, group: int) -> GroupStore | PendingStore:
        """Take a group to the head of the committed history, with what this epoch has changed in it so far."""
        store = self.bring(group)
        return PendingStore(store, self.pending[group]) if group in self.pending else store

    def bring_whole(self, group: int) -> None:
        """Take a group to the head of the committed history, all of it in a copy that is here."""
        store = self.bring(group)
        if isinstance(store, InPlaceStore):
            self._flatten(group, store)

    def bring_all(self, groups: Iterable[int]) -> None:
        """Take groups to the head of the committed history, whole; several are copied and opened at a time."""
        groups, in_place = list(groups), self.reads_there
        with ThreadPoolExecutor(1 if self.head.bytes_per_second else _STREAMS) as pool:
            for group in groups:
                reference = None if in_place or self.lacks_logs_only(group) else self.history.snapshot_of(group)
                if reference is not None:
                    self._coming[group] = pool.submit(self._copied, group, reference)
            for group in groups:
                self.bring_whole(group)

    def bring(self, group: int) -> GroupStore:
        """Take a group to the head of the committed history and open it."""
        if self.head.throw_away:
            return MemoryStore()
        self.accessed += 1
        store = self._at_the_head(group)
        self.sizes[group] = store.entries(), store.bytes_used()
        return store

    def _at_the_head(self, group: int) -> GroupStore:
        wanted = self.head.changed[group]
        try:
            here = self.copies.opened(group)
            store = here if here is not None else self._fresh(group)
            version = store.version()
        except _DAMAGE:
            store = self._restore(group)  # a damaged cache is only a cache
            version = store.version()
        if wanted is None:
            return store if version is None else self.copies.begun(group)
        if version is not None and (version.epoch, version.commit) == wanted and version.job == self.head.job:
            return store
        missing = self.history.since(group, version)
        if missing is None:
            store = self._restore(group)
            missing = self.history.since(group, store.version())
            if missing is None:
                raise StateError(
                    f"group {group} of operator {self.head.operator!r} cannot be restored: its history in "
                    f"{self.head.checkpoint} is not complete. Start from a savepoint or a copy of the checkpoint"
                )
        changes = [self._changes(path, group) for path in missing]
        store.apply(changes if len(changes) < 2 else [Latest(changes)], Version(self.head.job, *wanted))
        return store

    def snapshot(self, group: int) -> tuple[int, SnapshotRef] | None:
        """Copy a group, as of the head, to the durable store."""
        store = self.bring(group)
        version = store.version()
        if version is None:
            return None
        if isinstance(store, InPlaceStore):
            store = self._flatten(group, store)
        return group, self.snapshots.write(group, store, version, f"{self.copies.new_path(group)}.snapshot")

    def _fresh(self, group: int) -> GroupStore:
        """Begin an empty store, where the history has nothing for the group or its copy is not there."""
        return self.copies.begun(group) if self.head.changed[group] is None else self._restore(group)

    def _restore(self, group: int) -> GroupStore:
        """Bring the newest snapshot beside what is there, and exchange it; where there is none, begin anew."""
        self.restored += 1
        reference = self.history.snapshot_of(group)
        if reference is None:
            return self.copies.begun(group)
        try:
            if self.reads_there:
                self.snapshots.verify(reference)
                return self.copies.begun_over(group, self.snapshots.path(reference))
            coming = self._coming.pop(group, None)
            path, store = coming.result() if coming is not None else self._copied(group, reference)
            self.budget.copied += reference.size
        except _DAMAGE as error:
            raise StateError(
                f"the snapshot {self.snapshots.path(reference)} is missing or damaged ({error}). Restore it from a "
                "copy of the checkpoint and start again with the same checkpoint, or start from a savepoint"
            ) from error
        self.copies.exchange(group, path)
        return store

    def _copied(self, group: int, reference: SnapshotRef) -> tuple[str, GroupStore]:
        """Copy a snapshot, and return the path of the copy and the store that it is; safe in a thread."""
        path = self.copies.new_path(group)
        self.snapshots.copy(reference, path)
        return path, self.copies.kind.restored(path)

    def _flatten(self, group: int, store: InPlaceStore) -> GroupStore:
        path = self.copies.new_path(group)
        full = store.flatten(path)
        self.budget.copied += os.path.getsize(store.base)
        self.copies.exchange(group, path)
        return full

    def _changes(self, path: str, group: int) -> Changes:
        """Read what an epoch has changed in a group."""
        if path not in self._logs:
            self._logs[path] = Log(self.snapshots.storage, path)
        found = self._logs[path].changes(group)
        if found is None:
            raise StateError(f"the change log {path} has no changes of group {group}, against its commit record")
        return found
