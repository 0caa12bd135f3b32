"""A snapshot read where it lies, with what has changed since in a small file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import lmdb

from midstream.errors import StateError
from midstream.state.stores.contract import FIRST, LAST, Changes, InPlaceStore, Reader, Version
from midstream.state.stores.lmdb import (
    META,
    PAGE,
    LmdbReader,
    LmdbStore,
    check_file,
    close_environment,
    damaged,
    decode_version,
    environment_of,
)
from midstream.state.throttle import Throttle

_UNBOUNDED = Throttle()


class LayeredStore(InPlaceStore):
    """A snapshot read in place, with a small local layer of newer changes over it.

    For groups whose file has not been copied: only the pages that a lookup needs are read. It is not snapshotted
    again; `flatten` turns it into a full store. A throttle counts the pages that are read, also those that were
    read before.
    """

    def __init__(self, base: str, layer: str, throttle: Throttle = _UNBOUNDED) -> None:
        self.base = base
        self._throttle = throttle
        check_file(base)
        try:
            self._base = environment_of(base, _opened_in_place)
        except lmdb.Error as error:
            raise damaged(base, error) from error
        self._layer = LmdbStore(layer)

    def version(self) -> Version | None:  # noqa: D102
        newer = self._layer.version()
        if newer is not None:
            return newer
        try:
            with self._base.begin() as transaction:
                return decode_version(transaction.get(META))
        except lmdb.Error as error:
            raise damaged(self.base, error) from error

    @contextmanager
    def reader(self) -> Iterator[Reader]:  # noqa: D102
        with self._base.begin() as transaction, self._layer.reader() as newer:
            yield _LayeredReader(_FarReader(transaction, self._base, self._throttle), newer)

    def apply(self, changes: Iterable[Changes], version: Version) -> None:  # noqa: D102
        self._layer.apply([_Layered(change) for change in changes], version)

    def snapshot(self, path: str) -> None:  # noqa: D102
        raise StateError(f"the group over {self.base} is read in place: flatten it before taking a snapshot")

    def flatten(self, path: str) -> LmdbStore:
        """Copy base and layer into a full store."""
        with self._throttle.reading() as reading, open(self.base, "rb") as source, open(path, "wb") as target:
            while block := source.read(1 << 22):
                target.write(block)
                reading.bytes += len(block)
        full, version = LmdbStore(path), self.version()
        if version is not None and self._layer.version() is not None:
            with self._layer.reader() as newer:
                full.apply([_Flat(list(newer.scan(FIRST, LAST)))], version)
        return full

    def bytes_used(self) -> int:  # noqa: D102
        return os.path.getsize(self.base) + self._layer.bytes_used()

    def entries(self) -> int:  # noqa: D102
        return max(int(self._base.stat()["entries"]) - 1, 0) + self._layer.entries()

    def close(self) -> None:  # noqa: D102
        close_environment(self.base)
        self._layer.close()


class _FarReader(LmdbReader):
    """Reads pages of a file where it lies: for every key a leaf and what leads to it, each page once in a call."""

    def __init__(self, transaction: lmdb.Transaction, environment: lmdb.Environment, throttle: Throttle) -> None:
        super().__init__(transaction)
        tree = environment.stat()
        self._depth, self._branches, self._throttle = tree["depth"], tree["branch_pages"], throttle

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._throttle.reading() as reading:
            found = super().get_many(keys)
            reading.bytes += (len(keys) + min(len(keys) * (self._depth - 1), self._branches)) * PAGE
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._throttle.reading() as reading:
            reading.bytes += self._depth * PAGE
            for key, value in super().scan(start, stop):
                reading.bytes += len(key) + len(value)
                yield key, value


class _LayeredReader(Reader):
    def __init__(self, base: Reader, newer: Reader) -> None:
        self._base = base
        self._newer = newer

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        found = self._newer.get_many(keys)
        missing = [key for key, value in zip(keys, found, strict=True) if value is None]
        below = iter(self._base.get_many(missing))
        return [next(below) if v is None else (v[1:] if v[0] else None) for v in found]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        newer, base = self._newer.scan(start, stop), self._base.scan(start, stop)
        above, below = next(newer, None), next(base, None)
        while above or below:
            if above is None or (below is not None and below[0] < above[0]):
                assert below is not None
                yield below
                below = next(base, None)
                continue
            if below is not None and below[0] == above[0]:
                below = next(base, None)
            if above[1][0]:
                yield above[0], above[1][1:]
            above = next(newer, None)


class _Layered:
    """Changes as entries of a layer: a leading 1 and the value, or a 0 that hides what lies below."""

    def __init__(self, change: Changes) -> None:
        self._change = change

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        for key, value in self._change.puts():
            yield key, b"\1" + value
        for key in self._change.deletes():
            yield key, b"\0"

    def deletes(self) -> Iterable[bytes]:
        return ()


class _Flat:
    def __init__(self, entries: list[tuple[bytes, bytes]]) -> None:
        self._entries = entries

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        return ((key, value[1:]) for key, value in self._entries if value[0])

    def deletes(self) -> Iterable[bytes]:
        return (key for key, value in self._entries if not value[0])


def _opened_in_place(path: str) -> lmdb.Environment:
    return lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False, map_size=os.path.getsize(path))
