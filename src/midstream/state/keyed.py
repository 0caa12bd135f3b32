"""The state of a group in one epoch, and of the key at hand as a `KeyedFunction` sees it.

Entries of the store are read with what the epoch has changed since over them; nothing is written to the store: changes
are collected. Those of one list, of one map or of one kind are found together, so that a walk looks at no others.
Timers are entries too. A key has one record, with its values; elements of lists and maps are entries of their own.
`entries` says where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from midstream.errors import StateError
from midstream.plan.plan import StateField
from midstream.state.entries import (
    EVENT,
    EXPIRY,
    FIELDS,
    PROCESSING,
    Form,
    after,
    deadline_bytes,
    deadline_of,
    expiry_note,
    field_prefix,
)
from midstream.state.stores.contract import Reader
from midstream.state.timers import Timer
from midstream.state.values import micros_of, moment_of
from midstream.state.views import ListView, MapView

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


_TIMERS = {"event_time": EVENT, "processing_time": PROCESSING}


def timer_entry(timer: Timer, key: bytes) -> bytes:
    """The entry of a timer of a key."""
    if not isinstance(timer.at, datetime):
        raise TypeError(f"a timer needs a datetime, not {timer.at!r}")
    return bytes((_TIMERS[timer.kind],)) + deadline_bytes(micros_of(timer.at)) + key


class TimedEntries(ChangedEntries):
    """Entries of a group with its deadlines: what is due is taken out, and the next ones are known."""

    def __init__(self, reader: Reader, now: int) -> None:
        super().__init__(reader)
        self.now = now
        self._taken: dict[int, int] = {}  # kind of deadline -> moment up to which they have been taken

    def take_due(self, watermark: int | None) -> list[tuple[bytes, Timer]]:
        """Remove the timers that are due and return them with their keys: by time, then kind, then key."""
        due = []
        for kind, limit in (("event_time", watermark), ("processing_time", self.now)):
            entries = self.take_until(_TIMERS[kind], limit)
            due += [(deadline_of(entry), entry[0], entry[9:], kind) for entry in entries]
        return [(key, Timer(kind, moment_of(at))) for at, _, key, kind in sorted(due)]

    def take_until(self, tag: int, limit: int | None) -> list[bytes]:
        """Remove the entries of one kind, of timers or of expiry, up to a moment, and return them."""
        if limit is None:
            return []
        start = bytes((tag,))
        entries = [entry for entry, _ in self.scan(start, start + deadline_bytes(limit + 1))]
        self.remove_for_good(start, entries)
        self._taken[tag] = limit
        return entries

    def next_deadlines(self) -> tuple[int | None, int | None]:
        """Return the next event-time and processing-time deadline of the group."""
        event = self._next(EVENT)
        clock = [d for d in (self._next(PROCESSING), self._next(EXPIRY)) if d is not None]
        return event, min(clock, default=None)

    def _next(self, tag: int) -> int | None:
        kind = bytes((tag,))
        start = kind + (deadline_bytes(self._taken[tag] + 1) if tag in self._taken else b"")
        first = self.first(kind, start, bytes((tag + 1,)))
        return deadline_of(first) if first is not None else None


_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class GroupState(TimedEntries):
    """The state of one group in one epoch, one key of it at hand.

    It is its entries, and does not have them: a key is read and written without a call more.
    """

    def __init__(self, form: Form, reader: Reader, now: int) -> None:
        super().__init__(reader, now)
        self.form = form
        self._key, self._entry = b"", b""  # the key at hand, and where its record is
        self._record: list[Any] = []
        self._dirty = False
        self._marked: tuple[bytes, bytes, list[Any], bool] = (b"", b"", [], False)

    def prefetch(self, keys: list[bytes]) -> None:
        """Read the records of many keys at once."""
        self.look_up([self.form.record(key) for key in keys])

    def bind(self, key: bytes) -> None:
        """Make a key the one at hand."""
        self._key, self._entry, self._dirty = key, self.form.record(key), False
        stored = self.get(self._entry)
        self._record = _unpack(stored) if stored else [None] * len(self.form.fields)
        if stored is None and self.form.older is not None:
            self._migrate(self.form.older)
        if len(self._record) < len(self.form.fields):
            self._record += [None] * (len(self.form.fields) - len(self._record))

    def release(self) -> None:
        """Keep what was written to the record of the key at hand."""
        if self._dirty:
            self._put_record(self._entry, self._record)

    def mark(self) -> None:
        """Note all that is changed from here on, so that it can be taken back."""
        self._before = {}  # as super() would, without the call: a mark is set for every key
        self._marked = self._key, self._entry, self._record[:], self._dirty

    def take_back(self) -> None:
        """Be as at the mark; timers and notes that were taken since stay taken."""
        super().take_back()
        self._key, self._entry, self._record, self._dirty = self._marked

    def put_record(self, key: bytes, record: list[Any]) -> None:
        """Keep another record of a key, all of it, as it is stored; the key at hand stays the same."""
        self._put_record(self.form.record(key), record)

    def _put_record(self, entry: bytes, record: list[Any]) -> None:
        """Keep a record, an empty one only where an older form would be migrated again without it.

        Records are looked up, and never walked like what `put` notes.
        """
        empty = record.count(None) == len(record) and self.form.older is None
        self.changes[entry] = None if empty else _pack(record)

    def _migrate(self, older: Form) -> None:
        """Turn what the key at hand has in the older form into the form of today."""
        state = GroupState(older, self._reader, self.now)
        state.bind(self._key)
        if not state.has_something():
            return
        assert self.form.migrate is not None
        migrated = self.form.migrate({field.name: state.plain(field) for field in older.fields})
        unknown = set(migrated) - set(self.form.index)
        if unknown:
            raise StateError(
                f"the migration of operator {self.form.operator!r} returned {', '.join(sorted(unknown))}; the new "
                f"state has {', '.join(self.form.index) or 'nothing'}"
            )
        self._dirty = True
        for name, value in migrated.items():
            self.write(name, value)

    def has_something(self) -> bool:
        """Whether anything is kept for the key at hand."""
        prefixes = [field_prefix(self.form.number(at), self._key) for at in range(len(self.form.fields))]
        return any(item is not None for item in self._record) or any(
            next(self.scan(prefix, after(prefix)), None) is not None for prefix in prefixes
        )

    def plain(self, field: StateField) -> Any:
        """Return the state of a field as plain Python: a value, a list or a dictionary."""
        found = self.read(field.name)
        if field.kind == "value":
            return found
        return list(found) if field.kind == "list" else dict(found)

    # --- what declared attributes call ---

    def read(self, name: str) -> Any:
        """Return a value, or the view of a list or map."""
        plain = self.form.plain.get(name)
        if plain is not None:
            item = self._record[plain[0]]
            return plain[1].default if item is None else plain[2].unpack(item)
        at = self.form.index[name]
        field = self.form.fields[at]
        if field.kind == "value":
            item = self._record[at]
            is_there = item is not None and item[1] > self.now
            return self.form.wires[at].unpack(item[0]) if is_there else field.default
        return ListView(self, at) if field.kind == "list" else MapView(self, at)

    def write(self, name: str, value: Any) -> None:
        """Set a value, or replace a whole list or map; `None` removes it."""
        plain = self.form.plain.get(name)
        if plain is not None:
            self._record[plain[0]] = plain[2].checked(value)
            self._dirty = True
            return
        at = self.form.index[name]
        field = self.form.fields[at]
        if field.kind == "value":
            item = self.form.wires[at].checked(value)
            self.set_item(at, None if item is None else (item, self.expiry(at, self._entry)))
        elif field.kind == "list":
            ListView(self, at).replace(() if value is None else value)
        else:
            MapView(self, at).replace({} if value is None else value)

    # --- what views call ---

    @property
    def key(self) -> bytes:
        """The key at hand."""
        return self._key

    def item(self, at: int) -> Any:
        """One item of the record at hand."""
        return self._record[at]

    def set_item(self, at: int, item: Any) -> None:
        """Change one item of the record at hand."""
        self._record[at] = item
        self._dirty = True

    def expiry(self, at: int, entry: bytes) -> int:
        """Return the moment when something written now expires, and note to look then."""
        ttl = self.form.fields[at].ttl
        if not ttl:
            return 0
        self.put(expiry_note(self.now + ttl, ttl, entry), b"1")
        return self.now + ttl

    # --- what timers of a function call ---

    def set(self, timer: Timer) -> None:
        """Set a timer for the key at hand."""
        self.put(timer_entry(timer, self._key), b"1")

    def clear(self, timer: Timer) -> None:
        """Forget a timer of the key at hand."""
        self.put(timer_entry(timer, self._key), None)
