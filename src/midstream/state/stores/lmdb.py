"""State in LMDB: one file per group, read and written by all tasks of a host without a server.

Opened without sync: it is a cache, and the durable store is the truth. An environment may be open only once per
process, so the open ones are kept in a bounded registry of the process (never across a fork). The map is writable,
and LMDB gives a file the size of the map whenever it maps it: a file is therefore only ever mapped under a lock, and
never smaller than it is, or another process that writes beyond the new end would be killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import lmdb
import msgspec

from midstream.errors import StateError
from midstream.state.stores.contract import FIRST, Changes, GroupStore, Reader, Version

T = TypeVar("T")

META = b"\0version"  # before all entries
_MAX_KEY = 511  # LMDB's limit: a longer key is kept in the value, under its first bytes and a hash
_KEPT = _MAX_KEY - 32
_START_SIZE = 1 << 20
_MAX_OPEN = 512
PAGE = 4096


class _File(NamedTuple):
    environment: lmdb.Environment
    stat: os.stat_result


_open: OrderedDict[str, _File] = OrderedDict()
_open_in = os.getpid()
_making_room = threading.Lock()


def _open_here() -> OrderedDict[str, _File]:
    """The files that this process has open."""
    global _open_in
    if _open_in != os.getpid():  # a fork: what the parent has open is the parent's
        _open.clear()
        _open_in = os.getpid()
    return _open


def environment_of(path: str, opened: Callable[[str], lmdb.Environment]) -> lmdb.Environment:
    """Return the environment of a file, opened if this process has not got it open."""
    here = _open_here()
    if path not in here:
        with _making_room:
            while len(here) >= _MAX_OPEN:
                here.popitem(last=False)[1].environment.close()
        try:
            environment = opened(path)
        except lmdb.Error:
            if not _close_twins(path):
                raise
            environment = opened(path)
        here[path] = _File(environment, os.stat(path))
    here.move_to_end(path)
    return here[path].environment


def _close_twins(path: str) -> bool:
    """Close a file that is open under another name, which LMDB refuses; tell whether there was one.

    A snapshot has several where a checkpoint was begun from another one: files that never change are linked.
    """
    here, this = _open_here(), os.stat(path)
    twins = [other for other, file in here.items() if os.path.samestat(file.stat, this)]
    for other in twins:
        close_environment(other)
    return bool(twins)


def _opened(path: str) -> lmdb.Environment:
    known = os.path.exists(path)
    with _size_of(path, "ab") as size:
        if known:
            check_file(path)
        environment = lmdb.open(
            path,
            subdir=False,
            map_size=max(_START_SIZE, size),
            sync=False,
            metasync=False,
            writemap=True,
            map_async=True,
            meminit=False,
            readahead=False,
        )
    environment.reader_check()  # a reader that was killed would hold its pages for ever
    return environment


def close_environment(path: str) -> None:
    """Close a file, if this process has it open."""
    file = _open_here().pop(path, None)
    if file is not None:
        file.environment.close()


@contextmanager
def _size_of(path: str, mode: str = "rb") -> Iterator[int]:
    """Return the size of a file; no other process maps it meanwhile."""
    with open(path, mode) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield os.fstat(file.fileno()).st_size


def check_file(path: str) -> None:
    """Refuse a file that is shorter than its own header says: reading past its end would kill the process."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        pages = [file.read(PAGE) for _ in range(2)]
    newest = (-1, 0)
    for page in pages:
        if len(page) == PAGE and page[16:20] == b"\xde\xc0\xef\xbe":
            last_page, transaction = struct.unpack_from("<QQ", page, 16 + 8 + 16 + 96)
            newest = max(newest, (transaction, last_page))
    if newest[0] < 0 or size < (newest[1] + 1) * PAGE:
        raise StateError(f"the state file {path} is damaged or cut off at {size} bytes")


class LmdbStore(GroupStore):
    """A group's state in one LMDB file."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._env = environment_of(path, _opened)
        except lmdb.Error as error:
            raise damaged(path, error) from error

    def version(self) -> Version | None:  # noqa: D102 - as in the contract
        try:
            with self._reading() as transaction:
                return decode_version(transaction.get(META))
        except lmdb.Error as error:
            raise damaged(self.path, error) from error

    @contextmanager
    def reader(self) -> Iterator[Reader]:  # noqa: D102
        with self._reading() as transaction:
            yield LmdbReader(transaction)

    def apply(self, changes: Iterable[Changes], version: Version) -> None:  # noqa: D102
        changes = list(changes)

        def write() -> None:
            with self._env.begin(write=True) as transaction:
                for change in changes:
                    _put_all(transaction, change)
                    for key in change.deletes():
                        transaction.delete(_physical(key))
                transaction.put(META, msgspec.msgpack.encode(version))

        self._growing(write)

    def snapshot(self, path: str) -> None:  # noqa: D102
        with open(path, "wb") as file:
            self._env.copyfd(file.fileno(), compact=True)

    def bytes_used(self) -> int:  # noqa: D102
        return int((self._env.info()["last_pgno"] + 1) * PAGE)

    def entries(self) -> int:  # noqa: D102
        return max(int(self._env.stat()["entries"]) - 1, 0)  # one is the version

    def close(self) -> None:  # noqa: D102
        close_environment(self.path)

    def _growing(self, write: Callable[[], T]) -> T:
        """Run a write transaction, with a larger map each time it does not fit."""
        while True:
            try:
                return write()
            except lmdb.MapFullError:
                self._map(self._env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self._map()

    def _map(self, size: int = 0) -> None:
        """Map the file anew: as large as it is, or larger."""
        with _size_of(self.path) as now:
            self._env.set_mapsize(max(now, size))

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction]:
        while True:
            try:
                transaction = self._env.begin()
                break
            except lmdb.MapResizedError:  # another process has grown it
                self._map()
        with transaction:
            yield transaction


class LmdbReader(Reader):
    """A read transaction."""

    def __init__(self, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:  # noqa: D102
        if keys and max(map(len, keys)) > _MAX_KEY:
            physical = [_physical(key) for key in keys]
            found = dict(self._transaction.cursor().getmulti(physical))
            return [_logical(p, found[p])[1] if p in found else None for p in physical]
        pairs: list[tuple[Any, Any]] = self._transaction.cursor().getmulti(keys)
        if len(pairs) == len(keys):
            return [value for _, value in pairs]
        return list(map(dict(pairs).get, keys))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:  # noqa: D102
        cursor = self._transaction.cursor()
        if not cursor.set_range(max(start, FIRST)[:_KEPT]):
            return
        end = stop[:_KEPT]
        held: list[tuple[bytes, bytes]] = []
        for physical, value in cursor:
            if bytes(physical)[:_KEPT] > end:
                break
            entry = _logical(bytes(physical), bytes(value))
            if len(physical) == _MAX_KEY or (held and held[-1][0][:_KEPT] == entry[0][:_KEPT]):
                held.append(entry)  # long keys of one prefix stand in the order of their hashes: sort them
                continue
            yield from sorted(e for e in held if start <= e[0] < stop)
            held = [entry]
        yield from sorted(e for e in held if start <= e[0] < stop)


def _physical(key: bytes) -> bytes:
    return key if len(key) <= _MAX_KEY else key[:_KEPT] + hashlib.sha256(key).digest()


def _logical(physical: bytes, value: Any) -> tuple[bytes, bytes]:
    if len(physical) == _MAX_KEY:
        size = int.from_bytes(value[:4], "little")
        key = value[4 : 4 + size]
        if size > _MAX_KEY and _physical(key) == physical:
            return key, value[4 + size :]
    return physical, value


def _put_all(transaction: lmdb.Transaction, change: Changes) -> None:
    try:
        transaction.cursor().putmulti(change.puts())
    except lmdb.BadValsizeError:
        for key, value in change.puts():
            if len(key) > _MAX_KEY:
                value = len(key).to_bytes(4, "little") + key + value
            transaction.put(_physical(key), value)


def damaged(path: str, error: lmdb.Error) -> StateError:
    """Say that a file cannot be opened, or read at all."""
    return StateError(f"the state file {path} is damaged: {error}")


def decode_version(value: Any) -> Version | None:
    """Read the version that a store has kept."""
    try:
        return msgspec.msgpack.decode(value, type=Version) if value else None
    except msgspec.MsgspecError as error:
        raise StateError(f"the state file has no readable version: {error}") from error
