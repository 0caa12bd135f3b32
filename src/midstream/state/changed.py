"""Entries of a group as an epoch sees them: what is stored, with what has been changed since over it.

Nothing is written to the store: changes are collected. Those of one list, of one map or of one kind are found together,
so that a walk looks at no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from midstream.state.entries import FIELDS
from midstream.state.stores.contract import Reader

_UNCHANGED = b"unchanged"  # by identity


def _place(entry: bytes) -> bytes:
    """What the entries that are walked together have in common: list or map and key, or the kind alone."""
    return entry[: 5 + int.from_bytes(entry[1:5], "big")] if entry[0] >= FIELDS else entry[:1]


class ChangedEntries:
    """What is stored of one group, and what one epoch has changed since."""

    def __init__(self, reader: Reader) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._reader = reader
        self._places: dict[bytes, set[bytes]] = {}  # where changes are looked for -> the changed entries there
        self._known: dict[bytes, bytes | None] = {}  # what was looked up
        self._before: dict[bytes, bytes | None] | None = None  # since the mark: entry -> how it was changed before

    def read_from(self, reader: Reader) -> None:
        """Go on with another view of the same version of the store."""
        self._reader = reader

    def look_up(self, entries: list[bytes]) -> None:
        """Read many entries at once, those that `get` will be asked for."""
        self._known.update(zip(entries, self._reader.get_many(entries), strict=True))

    def get(self, entry: bytes) -> bytes | None:
        """Look an entry up, changes first."""
        if entry in self.changes:
            return self.changes[entry]
        if entry not in self._known:
            self._known[entry] = self._reader.get_many([entry])[0]
        return self._known[entry]

    def get_many(self, entries: list[bytes]) -> list[bytes | None]:
        """Look many entries up, changes first."""
        found = self._reader.get_many(entries)
        if not self.changes:
            return found
        return [self.changes.get(entry, stored) for entry, stored in zip(entries, found, strict=True)]

    def put(self, entry: bytes, value: bytes | None) -> None:
        """Change an entry; `None` deletes it."""
        if self._before is not None and entry not in self._before:
            self._before[entry] = self.changes.get(entry, _UNCHANGED)
        self.changes[entry] = value
        self._places.setdefault(_place(entry), set()).add(entry)

    def remove_for_good(self, kind: bytes, entries: Iterable[bytes]) -> None:
        """Delete entries of one kind; they stay deleted, also if what was changed since the mark is taken back."""
        self.changes.update(dict.fromkeys(entries))
        self._places.setdefault(kind, set()).update(entries)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Walk entries of one list, one map or one kind in order, changes over what is stored."""
        changed = sorted(entry for entry in self._places.get(_place(start), ()) if start <= entry < stop)
        stored = self._reader.scan(start, stop)
        below = next(stored, None)
        for entry in changed:
            while below is not None and below[0] < entry:
                yield below
                below = next(stored, None)
            if below is not None and below[0] == entry:
                below = next(stored, None)
            value = self.changes[entry]
            if value is not None:
                yield entry, value
        while below is not None:
            yield below
            below = next(stored, None)

    def first(self, kind: bytes, start: bytes, stop: bytes) -> bytes | None:
        """Return the first entry of one kind; of what is stored, only entries from `start` on are looked at."""
        changed = self._places.get(kind, ())
        stored = (entry for entry, _ in self._reader.scan(start, stop) if entry not in changed)
        first = min((e for e in changed if self.changes[e] is not None), default=None), next(stored, None)
        return min((entry for entry in first if entry is not None), default=None)

    def mark(self) -> None:
        """Note all that is changed from here on, so that it can be taken back."""
        self._before = {}

    def take_back(self) -> None:
        """Be as at the mark."""
        assert self._before is not None
        for entry, changed in self._before.items():
            if changed is _UNCHANGED:
                del self.changes[entry]
                self._places[_place(entry)].discard(entry)
            else:
                self.changes[entry] = changed
        self._before = None
