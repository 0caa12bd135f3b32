"""The store contract: the state of one group of one operator, as sorted byte strings with a version.

A store is changed only by `apply`, in one atomic step that moves it to the version of a committed epoch; reading is
from a snapshot that later changes do not disturb. The first byte of a key lies between 1 and 254, so that all keys lie
between `FIRST` and `LAST`. Every implementation passes `tests/contract/test_stores.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

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

    @abstractmethod
    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Walk the entries with `start <= key < stop` in order."""


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
        """Write a compact copy to a local file."""

    @abstractmethod
    def bytes_used(self) -> int:
        """Tell how large the state is."""

    @abstractmethod
    def entries(self) -> int:
        """Tell how many entries there are; where newer ones lie over older ones, some may be counted twice."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory."""
