"""The local cache of a host, and the one step that is recovery, migration and catching up alike.

`bring` takes a group to the head of the committed history: it applies the change logs that the cached copy lacks,
or, where the cached copy is missing, of another job, another history or damaged, restores the newest snapshot and
applies the logs after it. A cached copy is never trusted by its epoch number alone: commit ids must agree.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import lmdb

from midstream.checkpoint.checksum import checksum_of, copied
from midstream.checkpoint.layout import snapshot_directory
from midstream.checkpoint.records import SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state.background import in_background
from midstream.state.budget import Budget
from midstream.state.changelog import Latest, Log
from midstream.state.history import Head, History
from midstream.state.location import boot_id, executor_cache
from midstream.state.stores.contract import Changes, GroupStore, Version
from midstream.state.stores.layered import LayeredStore
from midstream.state.stores.lmdb import LmdbStore, close_environment
from midstream.state.stores.memory import MemoryStore
from midstream.state.stores.pending import Entries, PendingStore
from midstream.state.throttle import Throttle

IN_PLACE = ".base"
_ROOM = 1 << 20  # bytes that a copy can grow by before it is mapped anew; a snapshot has no free pages
_STREAMS = 4  # snapshots that are copied at a time, where all of them must come


@dataclass(slots=True)
class Cache:
    """The cached groups of one operator on this host, as one task sees them."""

    head: Head
    lazy: bool = False  # groups that are not here are read where they are stored, if that can be
    budget: Budget = field(default_factory=lambda: Budget(0, 0.0))  # for what is copied beside the work
    accessed: int = 0
    restored: int = 0
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)  # group -> entries, bytes
    directory: str = ""  # where the groups lie: apart for each job, each boot of the machine and each operator
    history: History = field(init=False)
    pending: dict[int, Entries] = field(default_factory=dict)  # group -> what this epoch has changed in it so far
    _coming: dict[int, Future[str]] = field(default_factory=dict)  # group -> the name of its copy, once it is made
    _logs: dict[str, Log] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.head)
        root = executor_cache(self.head.cache) if self.head.apart else self.head.cache
        self.directory = os.path.join(root, self.head.job, boot_id(), self.head.home)

    def view(self, group: int) -> GroupStore | PendingStore:
        """Take a group to the head of the committed history, with what this epoch has changed in it so far."""
        store = self.bring(group)
        return PendingStore(store, self.pending[group]) if group in self.pending else store

    def is_here(self, group: int) -> bool:
        """Whether there is a copy of a group; it may lack the last epochs."""
        return os.path.islink(self._pointer(group))

    def is_whole(self, group: int) -> bool:
        """Whether there is a copy of all of a group; it may lack the last epochs."""
        return self.is_here(group) and not os.readlink(self._pointer(group)).endswith(IN_PLACE)

    def must_come(self, group: int) -> bool:
        """Whether a group has to be read from the store, there or into a copy, to be looked into."""
        is_there = self.is_whole if self.reads_there else self.lacks_logs_only  # the second looks into the copy
        return self.head.changed[group] is not None and not is_there(group)

    def stored(self, group: int) -> str | None:
        """The snapshot that a group is, or would be, read from where it lies; `None` if there is none."""
        if self.is_here(group) and not self.is_whole(group):
            return os.path.realpath(self._pointer(group))
        reference = self.history.snapshot_of(group)
        return Storage(self.head.checkpoint).path(reference.path) if reference is not None else None

    def bring_whole(self, group: int) -> None:
        """Take a group to the head of the committed history, all of it in a copy that is here."""
        store = self.bring(group)
        if isinstance(store, LayeredStore):
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
            store = self._open(group)
            version = store.version()
        except (StateError, lmdb.Error, OSError, ValueError):
            store = self._restore(group)  # a damaged cache is only a cache
            version = store.version()
        if wanted is None:
            return store if version is None else self._fresh(group)
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
        changes: list[Changes] = []
        for path in missing:
            found = self._log(path).changes(group)
            if found is None:
                raise StateError(f"the change log {path} has no changes of group {group}, against its commit record")
            changes.append(found)
        store.apply(changes if len(changes) < 2 else [Latest(changes)], Version(self.head.job, *wanted))
        return store

    def snapshot(self, group: int) -> tuple[int, SnapshotRef] | None:
        """Copy a group, as of the head, to the durable store."""
        store = self.bring(group)
        version = store.version()
        if version is None:
            return None
        if isinstance(store, LayeredStore):
            store = self._flatten(group, store)
        os.makedirs(self.directory, exist_ok=True)
        local = os.path.join(self.directory, f"{group}.{os.urandom(6).hex()}.snapshot")
        store.snapshot(local)
        checksum, size = checksum_of(local)
        path = f"{snapshot_directory(self.head.home, group)}/{version.epoch:012}-{os.urandom(6).hex()}.mdb"
        Storage(self.head.checkpoint).upload(local, path)
        return group, SnapshotRef(version.epoch, version.commit, path, size, checksum)

    def lacks_logs_only(self, group: int) -> bool:
        """Whether there is a copy of a group that change logs can bring to the head, and not one of other days."""
        if not self.is_here(group):
            return False
        try:
            version = self._open(group).version()
        except (StateError, lmdb.Error, OSError, ValueError):
            return False
        return version is not None and self.history.since(group, version) is not None

    def drop(self, group: int) -> None:
        """Drop the copy of a group."""
        pointer = self._pointer(group)
        if os.path.islink(pointer):
            name = os.readlink(pointer)
            os.unlink(pointer)
            self._delete(name)

    @property
    def reads_there(self) -> bool:
        """Whether groups that are not here are read where they are stored: the store is a file system."""
        return (self.head.in_place or self.lazy) and Storage(self.head.checkpoint).is_local

    @property
    def throttle(self) -> Throttle:
        """What bounds the speed of the store, in experiments."""
        return Throttle(self.head.bytes_per_second)

    def _pointer(self, group: int) -> str:
        return os.path.join(self.directory, f"{group}.current")

    def _open(self, group: int) -> GroupStore:
        try:
            name = os.readlink(self._pointer(group))
        except FileNotFoundError:
            return self._fresh(group)
        path = os.path.join(self.directory, name)
        if name.endswith(IN_PLACE):
            return LayeredStore(os.readlink(path), path + ".layer", self.throttle)
        if not os.path.exists(path):
            raise StateError(f"{path} is gone")
        return LmdbStore(path)

    def _fresh(self, group: int) -> GroupStore:
        """Begin an empty store, where the history has nothing for the group or its copy is not there."""
        if self.head.changed[group] is not None:
            return self._restore(group)
        name = self._new_name(group)
        store = LmdbStore(os.path.join(self.directory, name))
        self._switch(group, name)
        return store

    def _restore(self, group: int) -> GroupStore:
        """Bring the newest snapshot beside what is there, and switch to it."""
        self.restored += 1
        reference = self.history.snapshot_of(group)
        if reference is None:
            name = self._new_name(group)
            store: GroupStore = LmdbStore(os.path.join(self.directory, name))
        else:
            storage = Storage(self.head.checkpoint)
            where = storage.path(reference.path)
            try:
                if self.reads_there:
                    with self.throttle.reading() as reading:
                        _check(checksum_of(where), reference)
                        reading.bytes += reference.size
                    name = self._new_name(group) + IN_PLACE
                    path = os.path.join(self.directory, name)
                    os.symlink(where, path)
                    store = LayeredStore(where, path + ".layer", self.throttle)
                else:
                    coming = self._coming.pop(group, None)
                    name = coming.result() if coming is not None else self._copied(group, reference)
                    self.budget.copied += reference.size
                    store = LmdbStore(os.path.join(self.directory, name))
            except (OSError, ValueError, StateError, lmdb.Error) as error:
                raise StateError(
                    f"the snapshot {where} is missing or damaged ({error}). Bring it back from a copy of the "
                    "checkpoint and start again with the same checkpoint, or start from a savepoint"
                ) from error
        self._switch(group, name)
        return store

    def _copied(self, group: int, reference: SnapshotRef) -> str:
        """Copy a snapshot, open the copy and give its name; safe in a thread."""
        storage, name = Storage(self.head.checkpoint), self._new_name(group)
        path = os.path.join(self.directory, name)
        with self.throttle.reading() as reading:
            if storage.is_local:
                found = copied(storage.path(reference.path), path)
            else:
                storage.download(reference.path, path)
                found = checksum_of(path)
            reading.bytes += reference.size
        try:
            _check(found, reference)
        except ValueError:
            os.unlink(path)
            raise
        os.truncate(path, reference.size + _ROOM)
        LmdbStore(path)
        return name

    def _flatten(self, group: int, store: LayeredStore) -> LmdbStore:
        name = self._new_name(group)
        full = store.flatten(os.path.join(self.directory, name))
        self.budget.copied += os.path.getsize(store.base)
        self._switch(group, name)
        return full

    def _new_name(self, group: int) -> str:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        return f"{group}.{os.urandom(6).hex()}.mdb"

    def _switch(self, group: int, name: str) -> None:
        """Point to another file, atomically, and delete the one before: whoever still reads it keeps its pages."""
        pointer = self._pointer(group)
        before = os.readlink(pointer) if os.path.islink(pointer) else None
        if before is None:
            with contextlib.suppress(FileExistsError):  # of another task, or something that is no link
                os.symlink(name, pointer)
                return
        temporary = f"{pointer}.{os.urandom(4).hex()}"
        os.symlink(name, temporary)
        os.replace(temporary, pointer)
        if before is not None and before != name:
            self._delete(before)

    def _delete(self, name: str) -> None:
        old = os.path.join(self.directory, name)
        for path in (old, f"{old}.layer"):
            close_environment(path)
            in_background(_unlinked, (path, f"{path}-lock"))

    def _log(self, path: str) -> Log:
        if path not in self._logs:
            self._logs[path] = Log(Storage(self.head.checkpoint), path)
        return self._logs[path]


def _check(found: tuple[int, int], reference: SnapshotRef) -> None:
    if found != (reference.checksum, reference.size):
        raise ValueError("its checksum does not match")


def _unlinked(files: Iterable[str]) -> None:
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
