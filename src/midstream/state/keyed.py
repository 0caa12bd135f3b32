"""The state of the key at hand, as a `KeyedFunction` sees it: values, lists and maps, and its timers.

A key has one record, with its values; elements of lists and maps are entries of their own. `entries` says where they
lie.
"""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.errors import StateError
from midstream.plan.plan import StateField
from midstream.state.deadlines import TimedEntries, timer_entry
from midstream.state.entries import Form, after, expiry_note, field_prefix
from midstream.state.stores.contract import Reader
from midstream.state.timers import Timer
from midstream.state.views import ListView, MapView

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
