"""A store that Midstream does not have, made with its contracts alone: a group is one file, read and written whole."""

from __future__ import annotations

import contextlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from midstream.state.stores.contract import Changes, GroupStore, Reader, StoreKind, Version


class Whole(StoreKind):
    """Keeps each group in a file of JSON."""

    format: ClassVar[str] = "whole"

    def open(self, path: str) -> GroupStore:
        """Read the file, or begin one."""
        return WholeStore(Path(path))

    def delete(self, path: str) -> None:
        """Delete it: who reads it has read it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class WholeStore(GroupStore):
    """A file of JSON, and what it held when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._version = path, None
        self._entries: dict[bytes, bytes] = {}
        if path.exists():
            version, entries = json.loads(path.read_text("ascii"))
            self._version = Version(*version) if version is not None else None
            self._entries = {bytes.fromhex(key): bytes.fromhex(value) for key, value in entries.items()}
        else:
            self._write(path, self._entries, None)

    def version(self) -> Version | None:
        """Tell what the file says."""
        return self._version

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Read what there is now: it is never changed, only replaced."""
        yield WholeReader(self._entries)

    def apply(self, changes: Iterable[Changes], version: Version) -> None:
        """Write another file in the place of this one."""
        entries = dict(self._entries)
        for change in changes:
            entries.update(change.puts())
            for key in change.deletes():
                entries.pop(key, None)
        self._write(self._path, entries, version)
        self._entries, self._version = entries, version

    def snapshot(self, path: str) -> None:
        """Write the same to another place."""
        self._write(Path(path), self._entries, self._version)

    def bytes_used(self) -> int:
        """Tell how large the file is."""
        return self._path.stat().st_size

    def entries(self) -> int:
        """Count them."""
        return len(self._entries)

    def close(self) -> None:
        """Keep nothing open: the file was read as a whole."""

    @staticmethod
    def _write(path: Path, entries: dict[bytes, bytes], version: Version | None) -> None:
        temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        temporary.write_text(json.dumps([version, {key.hex(): value.hex() for key, value in entries.items()}]), "ascii")
        os.replace(temporary, path)


class WholeReader(Reader):
    """Reads a dictionary."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries, self._keys = entries, list[bytes]()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Look keys up."""
        return [self._entries.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Walk keys in order."""
        self._keys = self._keys or sorted(self._entries)
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]:
            yield key, self._entries[key]
