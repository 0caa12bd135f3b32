"""State in plain dictionaries: the model that other stores are compared with, and the measure of what they cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from midstream.errors import StateError
from midstream.state.stores.contract import Changes, GroupStore, Reader, Version


class MemoryStore(GroupStore):
    """A group's state in memory; gone with the process."""

    def __init__(self, entries: dict[bytes, bytes] | None = None, version: Version | None = None) -> None:
        self._entries = dict(entries or {})
        self._version = version

    def version(self) -> Version | None:  # noqa: D102 - as in the contract
        return self._version

    @contextmanager
    def reader(self) -> Iterator[Reader]:  # noqa: D102
        reader = _DictReader(self._entries)
        try:
            yield reader
        finally:
            reader.is_closed = True

    def apply(self, changes: Iterable[Changes], version: Version) -> None:  # noqa: D102
        entries = dict(self._entries)
        for change in changes:
            entries.update(change.puts())
            for key in change.deletes():
                entries.pop(key, None)
        self._entries, self._version = entries, version

    def snapshot(self, path: str) -> None:  # noqa: D102
        with open(path, "wb") as file:
            file.write(msgspec.msgpack.encode((self._version, list(self._entries.items()))))

    @classmethod
    def restore(cls, path: str) -> MemoryStore:
        """Open a snapshot."""
        with open(path, "rb") as file:
            version, entries = msgspec.msgpack.decode(file.read())
        return cls(dict(entries), Version(*version) if version else None)

    def bytes_used(self) -> int:  # noqa: D102
        return sum(len(k) + len(v) for k, v in self._entries.items())

    def entries(self) -> int:  # noqa: D102
        return len(self._entries)

    def close(self) -> None:  # noqa: D102
        self._entries = {}


class _DictReader(Reader):
    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries = entries
        self._sorted: list[bytes] | None = None
        self.is_closed = False  # as a transaction is that has ended

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._check()
        return [self._entries.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        for key in self._sorted[bisect_left(self._sorted, start) : bisect_left(self._sorted, stop)]:
            yield key, self._entries[key]

    def _check(self) -> None:
        if self.is_closed:
            raise StateError("state is read through a reader that is closed")
