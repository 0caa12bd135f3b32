"""Rows that a slot keeps of the two sides of a join, for its current keys: read into columns, changed by entries.

There are two lists per key, as a keyed function has them: an entry per row, and a record that says how many there were.
A deleted row leaves a hole; a list is compacted when it is read whole and most of it is holes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.operators.joins.rules import SIDES, Join, Times
from midstream.state.entries import Form, after, event_timer, expiry_note, field_prefix
from midstream.state.keyed import GroupState
from midstream.state.values import Wire

_HOLES = 16  # in a list, above which they must be fewer than rows
_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
_LAST = np.iinfo(np.int64).max >> 1  # after every event time, and far from overflow

Numbers = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Packed = tuple[object, ...]  # a row as it is stored; of a join that is bounded: time, whether it has matched, row


@dataclass(slots=True)
class Side:
    """Rows of one side: first those that were kept, then the new ones."""

    stored: int
    owners: Numbers  # the number of each row's key
    times: Times
    columns: list[pa.Array]
    unmatched: Mask  # of those that were kept: it is noted that they have had no match
    places: list[int]  # of those that were kept: where in its list each one is
    packed: list[Packed]  # of those that were kept: as they are stored

    @property
    def is_new(self) -> Mask:
        """Which rows are new."""
        return np.arange(len(self.owners)) >= self.stored


class KeptRows:
    """The current keys, which have new rows or something to be dropped, and what becomes of their state."""

    def __init__(self, join: Join, form: Form, keys: list[bytes], groups: list[int], watermark: int | None) -> None:
        self.keys, self.groups = keys, groups  # each key, and its group
        self.states: dict[int, GroupState] = {}  # of each group; the changes are in it
        self._join, self._form = join, form
        self._records: list[list[int | None]] = [[] for _ in keys]
        self._had_record: set[int] = set()
        self._awake: set[int] = set()  # keys whose lists are read whole, since something is due
        self._dirty: set[int] = set()  # keys whose records have changed
        self._found: dict[str, list[tuple[int, int, Packed]]] = {side: [] for side in SIDES}  # key, place, row
        self._at = {side: form.index[side] for side in SIDES}
        self._number = {side: form.number(at) for side, at in self._at.items()}
        self._deadline, self._latest = form.index.get("deadline", 0), form.index.get("latest", 0)
        self._watermark = watermark
        self._goes_silently = not any(join.comes_alone(side) for side in SIDES)  # dropped rows emit nothing
        self._prefixes: dict[str, dict[int, bytes]] = {side: {} for side in SIDES}
        self._wires: dict[str, list[Wire]] = {}
        for side, at in self._at.items():
            type = form.wires[at].type
            fields = type.field("row").type if join.is_bounded else type
            self._wires[side] = [Wire(f.type, f"column {f.name!r} of the {side} side") for f in fields]

    # --- reading ---

    def read(
        self, state: GroupState, group: int, touched: range, wanted: dict[str, list[bool]], due: Iterable[bytes]
    ) -> None:
        """Read the records of a group's keys, and the rows that are wanted.

        Args:
            state: of the group; its changes so far are seen here.
            group: its number.
            touched: its keys that have new rows.
            wanted: side -> whether its rows are wanted, for each key that has new rows.
            due: keys of which something may be dropped: all their rows are read.
        """
        numbers = {self.keys[number]: number for number in touched}
        due = list(due)
        state.prefetch([*numbers, *due])
        if self._goes_silently:
            due = [key for key in due if key in numbers] + self._without_forgotten(
                state, [key for key in due if key not in numbers]
            )
        self._wake(group, numbers, due)
        self._read_rows(state, numbers, wanted)
        self.states[group] = state

    def _wake(self, group: int, numbers: dict[bytes, int], due: Iterable[bytes]) -> None:
        """Mark keys whose rows are all read; those without new rows get their numbers here."""
        for key in due:
            if key not in numbers:
                numbers[key] = len(self.keys)
                self.keys.append(key)
                self.groups.append(group)
                self._records.append([])
            self._awake.add(numbers[key])

    def _read_rows(self, state: GroupState, numbers: dict[bytes, int], wanted: dict[str, list[bool]]) -> None:
        """Read the records of keys, and the lists of the wanted sides: all entries of a group at once."""
        entries: list[bytes] = []
        places: list[tuple[str, int, int]] = []
        for key, number in numbers.items():
            self._take_record(state, key, number)
            is_awake = number in self._awake
            for side in SIDES:
                size = self._records[number][self._at[side]]
                if size and (is_awake or wanted[side][number]):
                    prefix = self._prefix(side, number)
                    if self._form.expires:
                        self._walk(state, side, number, prefix)
                    else:
                        entries += [prefix + place.to_bytes(4, "big") for place in range(size)]
                        places += [(side, number, place) for place in range(size)]
        for (side, number, place), stored in zip(places, state.get_many(entries), strict=True):
            if stored is not None:
                self._found[side].append((number, place, _unpack(stored)[0]))

    def _without_forgotten(self, state: GroupState, due: list[bytes]) -> list[bytes]:
        """Drop all rows of keys without reading them, where the watermark has passed them all; return the rest."""
        entries = [self._form.record(key) for key in due]
        records = [_unpack(stored) if (stored := state.get(entry)) else None for entry in entries]
        latest = np.array([_LAST if record is None else record[self._latest] for record in records], np.int64)
        ends = np.maximum(*(self._join.deadlines(side, latest) for side in SIDES))
        others = []
        for key, entry, record, end in zip(due, entries, records, ends.tolist(), strict=True):
            if record is None or self._watermark is None or end > self._watermark:
                others.append(key)
                continue
            state.changes[entry] = None
            for side in SIDES:
                prefix, size = field_prefix(self._number[side], key), record[self._at[side]] or 0
                state.changes.update(dict.fromkeys(prefix + place.to_bytes(4, "big") for place in range(size)))
        return others

    def _take_record(self, state: GroupState, key: bytes, number: int) -> None:
        stored = state.get(self._form.record(key))
        if stored is None:
            self._records[number] = [None] * len(self._form.fields)
            return
        self._records[number] = _unpack(stored)
        self._had_record.add(number)
        if number in self._awake:  # its timer is gone
            self._records[number][self._deadline] = None
            self._dirty.add(number)

    def _walk(self, state: GroupState, side: str, number: int, prefix: bytes) -> None:
        """Read a list whose rows expire: most of its positions may be empty."""
        for entry, stored in state.scan(prefix, after(prefix)):
            row, expiry = _unpack(stored)
            if expiry > state.now:
                self._found[side].append((number, int.from_bytes(entry[-4:], "big"), row))

    def side(self, side: str, owners: Numbers, times: Times, new: pa.StructArray) -> Side:
        """Concatenate the rows that were kept and new ones."""
        found = self._found[side]
        packed = [row for _, _, row in found]
        rows = [row[2] for row in packed] if self._join.is_bounded else packed
        stored = zip(*rows, strict=True) if rows else [() for _ in self._wires[side]]
        columns = [
            pa.concat_arrays([wire.array(values), fresh.cast(wire.type)])
            for wire, values, fresh in zip(self._wires[side], stored, new.flatten(), strict=True)
        ]
        moments = [row[0] if self._join.is_bounded else 0 for row in packed]
        return Side(
            len(found),
            np.concatenate([np.array([number for number, _, _ in found], np.intp), owners]),
            np.concatenate([np.array(moments, np.int64), times]),
            columns,
            np.array([self._join.is_bounded and row[1] is False for row in packed], bool),
            [place for _, place, _ in found],
            packed,
        )

    @property
    def is_awake(self) -> Mask:
        """Whether all rows of a key have been read, for each key."""
        awake = np.zeros(len(self.keys), dtype=bool)
        awake[list(self._awake)] = True
        return awake

    # --- changing ---

    def drop(self, side: str, rows: Side, gone: Numbers) -> None:
        """Drop some rows."""
        for i in gone.tolist():
            changes, entry = self._entry(side, int(rows.owners[i]), rows.places[i])
            changes[entry] = None

    def note_match(self, side: str, rows: Side, matched: Numbers) -> None:
        """Note that rows have had a match."""
        for i in matched.tolist():
            changes, entry = self._entry(side, int(rows.owners[i]), rows.places[i])
            time, _, row = rows.packed[i]
            changes[entry] = _pack(((time, True, row), 0))

    def close_up(self, side: str, rows: Side, stays: Numbers) -> None:
        """Compact lists that were read whole and are mostly holes without the dropped rows."""
        at = self._at[side]
        left: dict[int, list[int]] = {number: [] for number in self._awake if self._records[number][at]}
        for i in stays.tolist():
            if int(rows.owners[i]) in left:
                left[int(rows.owners[i])].append(i)
        for number, still in left.items():
            if still and (self._records[number][at] or 0) <= 2 * len(still) + _HOLES:
                continue
            values = []
            for i in still:
                changes, entry = self._entry(side, number, rows.places[i])
                values.append(changes.get(entry) or _pack((rows.packed[i], 0)))
                changes[entry] = None
            for place, value in enumerate(values):
                changes, entry = self._entry(side, number, place)
                changes[entry] = value
            self._records[number][at] = len(still) or None

    def extend(self, side: str, rows: Side, added: Numbers, matched: list[bool | None], clock: int) -> None:
        """Keep new rows, at the ends of their lists."""
        at, taken, ttl = self._at[side], pa.array(added), self._form.fields[self._at[side]].ttl
        columns = zip(self._wires[side], rows.columns, strict=True)
        packed: Iterable[Packed] = zip(*(wire.stored(column.take(taken)) for wire, column in columns), strict=True)
        if self._join.is_bounded:
            packed = zip(rows.times[added].tolist(), matched, packed, strict=True)
        expiry, owners = clock + ttl if ttl else 0, rows.owners[added].tolist()
        self._dirty.update(owners)
        records, prefixes = self._records, [self._prefix(side, number) for number in owners]
        changes = [self.states[self.groups[number]].changes for number in owners]
        for number, prefix, change, row in zip(owners, prefixes, changes, packed, strict=True):
            size = records[number][at] or 0
            entry = prefix + size.to_bytes(4, "big")
            change[entry] = _pack((row, expiry))
            records[number][at] = size + 1
            if ttl:
                self.states[self.groups[number]].put(expiry_note(expiry, ttl, entry), b"1")

    def look_at(self, number: int, deadline: int, latest: int) -> None:
        """Keep one timer per key, that of the row to be dropped first; and the time of the latest row."""
        record = self._records[number]
        before = record[self._latest]
        if before is None or before < latest:
            record[self._latest] = latest
            self._dirty.add(number)
        known = record[self._deadline]
        if known is not None and known <= deadline:
            return
        state = self.states[self.groups[number]]
        if known is not None:
            state.put(event_timer(known, self.keys[number]), None)
        state.put(event_timer(deadline, self.keys[number]), b"1")
        self._records[number][self._deadline] = deadline
        self._dirty.add(number)

    def write_records(self) -> None:
        """Keep the records that have changed."""
        for number in self._dirty:
            record, entry = self._records[number], self._form.record(self.keys[number])
            changes = self.states[self.groups[number]].changes
            if any(record[at] for at in self._at.values()):
                changes[entry] = _pack(record)
            elif number in self._had_record:
                changes[entry] = None

    def _entry(self, side: str, number: int, place: int) -> tuple[dict[bytes, bytes | None], bytes]:
        """The entry of a row, and the changes of its group."""
        return self.states[self.groups[number]].changes, self._prefix(side, number) + place.to_bytes(4, "big")

    def _prefix(self, side: str, number: int) -> bytes:
        known = self._prefixes[side]
        if number not in known:
            known[number] = field_prefix(self._number[side], self.keys[number])
        return known[number]
