"""The store contract: the state of one group of one operator, as sorted byte strings with a version.

A store is changed only by `apply`, in one atomic step that moves it to the version of a committed epoch; reading is
from a snapshot that later changes do not disturb. The first byte of a key lies between 1 and 254, so that all keys lie
between `FIRST` and `LAST`. Every implementation passes `tests/contract/test_stores.py`.

A `StoreKind` makes the stores of a job, which are copies on a host: what is durable are the change logs and the
snapshots. `start(store=...)` chooses one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from midstream.errors import StateError
from midstream.state.keys import Bytes, split
from midstream.state.throttle import Throttle

FIRST, LAST = b"\1", b"\xff"


class Version(NamedTuple):
    """Which committed epoch of which job a store stands at."""

    job: str
    epoch: int
    commit: str


class Changes(Protocol):
    """What a committed epoch changed in a group; may be read several times."""

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        """Return key and value of every put."""
        ...

    def deletes(self) -> Iterable[bytes]:
        """Return the key of every deletion."""
        ...


class Reader(ABC):
    """A view of a store at one version."""

    @abstractmethod
    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Look up keys; the answer has the order of the question."""

    def get_numbers(self, keys: Bytes, numbers: np.dtype[Any]) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
        """Look up keys, the rows of a matrix, whose values are records of numbers.

        Returns:
            each number as a column, in the order of the question, 0 where there is no value; and which keys have one.
        """
        blank = bytes(numbers.itemsize)
        values = self.get_many(split(keys))
        records = np.frombuffer(b"".join(value or blank for value in values), numbers)
        known = np.array([value is not None for value in values], bool)
        return [records[name] for name in numbers.names or ()], known

    @abstractmethod
    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Walk the entries with `start <= key < stop` in order."""


class Readable(Protocol):
    """What can be looked into."""

    def reader(self) -> AbstractContextManager[Reader]:
        """Open a view."""
        ...


class GroupStore(ABC):
    """The state of one group."""

    @abstractmethod
    def version(self) -> Version | None:
        """Tell where the store stands; `None`: new and empty."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Reader]:
        """Open a view; what is applied later is not seen in it.

        Not promised: that a view lasts while its own process makes the store grow. It may then fail, but it never
        shows what is newer.
        """

    @abstractmethod
    def apply(self, changes: Iterable[Changes], version: Version) -> None:
        """Apply the changes of one or more epochs, oldest first, and move to `version`: all or nothing."""

    @abstractmethod
    def snapshot(self, path: str) -> None:
        """Write a compact copy to a local file; `StoreKind.restored` makes a store of it, here or elsewhere."""

    @abstractmethod
    def bytes_used(self) -> int:
        """Tell how large the state is."""

    @abstractmethod
    def entries(self) -> int:
        """Tell how many entries there are; where newer ones lie over older ones, some may be counted twice."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory."""


class InPlaceStore(GroupStore):
    """A snapshot read where it is stored, with what has changed since beside it; it is not snapshotted again."""

    base: str  # the snapshot

    @abstractmethod
    def flatten(self, path: str) -> GroupStore:
        """Make a full store at a path of both."""


class StoreKind(ABC):
    """A kind of store: how the state of groups is kept in files of a host, and how its snapshots are read.

    One is made without arguments, on the driver and in every task. Where a path is given, the store is a file or a
    directory of that name, and may have other files whose names begin with it. Several processes of a host may have a
    store open: a task whose executor is slow may be run twice. What is damaged raises a `StateError`, an `OSError` or
    a `ValueError` when it is opened or asked for its version; then the group is restored. What fails later raises an
    `OSError`; then Spark runs the task again. Anything else would be taken for an error of the user's code.
    """

    format: ClassVar[str]
    """The name of what its files look like: letters, digits, underscores. Names of files end with it, and a checkpoint
    is of one format for its life: choose another where older files cannot be read."""

    reads_in_place: ClassVar[bool] = False
    """Whether `in_place` is there. Without, snapshots are copied whole before they are read."""

    @abstractmethod
    def open(self, path: str) -> GroupStore:
        """Open the store at a path, or begin one there, empty and without a version, if there is none."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the store at a path, if there is one; who has it open in another process can go on reading."""

    def restored(self, path: str) -> GroupStore:
        """Make a store of a copy of a snapshot, at the path where the copy lies; may be called in a thread."""
        return self.open(path)

    def in_place(self, snapshot: str, path: str, throttle: Throttle) -> InPlaceStore:
        """Open a snapshot where it is stored; what is applied to it is kept in a store at a path.

        Args:
            snapshot: a file, which is not written to.
            path: of a store that is deleted as others are.
            throttle: is told how many bytes of the snapshot are read.
        """
        raise StateError(f"a store of the format {self.format!r} does not read snapshots in place")
