"""A store with changes over it that are not committed yet: what one epoch sees of what it has done itself.

Needed where a task makes up for several epochs in one: each of them must see what those before it have changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager

from midstream.state.stores.contract import Readable, Reader

Entries = dict[bytes, bytes | None]  # None: deleted


class PendingStore:
    """Reads a store as it will be; it cannot be written."""

    def __init__(self, store: Readable, changes: Entries) -> None:
        self._store, self._changes = store, changes

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Open a view of the store with the changes over it."""
        with self._store.reader() as below:
            yield _PendingReader(below, self._changes)


class _PendingReader(Reader):
    def __init__(self, below: Reader, changes: Entries) -> None:
        self._below, self._changes = below, changes

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        stored = self._below.get_many(keys)
        return [self._changes.get(key, value) for key, value in zip(keys, stored, strict=True)]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        below = ((key, value) for key, value in self._below.scan(start, stop) if key not in self._changes)
        above = ((key, self._changes[key]) for key in sorted(self._changes) if start <= key < stop)
        put = ((key, value) for key, value in above if value is not None)
        return heapq.merge(below, put, key=lambda entry: entry[0])
