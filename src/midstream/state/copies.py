"""The copies of groups on this host: which store is the copy of a group, and how it is made, exchanged and dropped.

A link, `<group>.current`, names the copy. So a copy is exchanged in one step, and whoever still reads the one before
can go on. A copy may be of what has changed since a snapshot only: then that is read where it is stored.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from midstream.errors import StateError
from midstream.state.stores.contract import GroupStore, InPlaceStore, StoreKind
from midstream.state.throttle import Throttle

_IN_PLACE = ".base"  # ends the name of a link to a snapshot; beside it lies what has changed since


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of the groups of one operator; they may lack the last epochs, or be of other days."""

    directory: str  # where they lie: apart for each job, each boot of the machine and each operator
    kind: StoreKind
    throttle: Throttle

    def is_here(self, group: int) -> bool:
        """Whether there is a copy of a group."""
        return os.path.islink(self._pointer(group))

    def is_whole(self, group: int) -> bool:
        """Whether there is a copy of all of a group."""
        return self.is_here(group) and not os.readlink(self._pointer(group)).endswith(_IN_PLACE)

    def snapshot_under(self, group: int) -> str | None:
        """The snapshot that a copy reads where it is stored, if it does."""
        return os.path.realpath(self._pointer(group)) if self.is_here(group) and not self.is_whole(group) else None

    def opened(self, group: int) -> GroupStore | None:
        """Open the copy of a group; `None` if there is none. Raises if it is damaged: it is only a copy."""
        try:
            name = os.readlink(self._pointer(group))
        except FileNotFoundError:
            return None
        path = f"{self.directory}/{name}"
        if not self._is_ours(name):
            raise StateError(f"{path} is of another kind of store")
        if name.endswith(_IN_PLACE):
            return self.kind.in_place(os.readlink(path), _layer(path), self.throttle)
        if not os.path.exists(path):
            raise StateError(f"{path} is gone")
        return self.kind.open(path)

    def begun(self, group: int) -> GroupStore:
        """Begin an empty copy of a group, and let it be the one."""
        path = self.new_path(group)
        store = self.kind.open(path)
        self.exchange(group, path)
        return store

    def begun_over(self, group: int, snapshot: str) -> InPlaceStore:
        """Begin a copy of what will change since a snapshot, and let it be the one."""
        path = self.new_path(group) + _IN_PLACE
        os.symlink(snapshot, path)
        store = self.kind.in_place(snapshot, _layer(path), self.throttle)
        self.exchange(group, path)
        return store

    def new_path(self, group: int) -> str:
        """Return a path for another copy of a group, which is not the one until it is exchanged."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        return f"{self.directory}/{group}.{os.urandom(6).hex()}.{self.kind.format}"

    def exchange(self, group: int, path: str) -> None:
        """Let another store be the copy of a group, in one step, and delete the one before."""
        pointer, name = self._pointer(group), os.path.basename(path)
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

    def drop(self, group: int) -> None:
        """Drop the copy of a group."""
        pointer = self._pointer(group)
        if os.path.islink(pointer):
            name = os.readlink(pointer)
            os.unlink(pointer)
            self._delete(name)

    def _pointer(self, group: int) -> str:
        return f"{self.directory}/{group}.current"

    def _delete(self, name: str) -> None:
        path = f"{self.directory}/{name}"
        if name.endswith(_IN_PLACE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # the link to a snapshot
            path = _layer(path)
        if self._is_ours(name):  # what is of another kind goes with the directory
            self.kind.delete(path)

    def _is_ours(self, name: str) -> bool:
        return name.removesuffix(_IN_PLACE).endswith(f".{self.kind.format}")


def _layer(path: str) -> str:
    """Where the changes since a snapshot lie, beside the link to it."""
    return path + ".layer"
