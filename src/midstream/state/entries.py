"""Entries of a store: where the state of a key lies, and the forms that a declaration of state has had.

Entries of a group, by their first byte (all keys are binary, see `keys`):

    1 key                        the record of a key: one item per declared field
    2 deadline key               an event-time timer
    3 deadline key               a processing-time timer
    4 deadline entry             when to look whether an entry has expired
    5 length key                 the record of state that is not of a key, see `shared`
    6 length key rest            an entry of such a list or map
    7 start after until key      the part of a pane that counts in windows between two moments only, see `window_panes`
    16+i length key map_key      an entry of the map that is field i
    16+i length key index        an element of the list that is field i

Sessions are records and event-time timers; their key is followed by the session's start. Panes are records; their start
is before their key.

State that was migrated has another form: its record is the entry `16+base length key`, its fields are numbered from
base + 1. Entries of the older form stay as they are, so that an undo finds them; a key is migrated when it is next met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.plan import code
from midstream.plan.code import Code
from midstream.plan.plan import StateField
from midstream.state.values import Wire

RECORD, EVENT, PROCESSING, EXPIRY, PART, FIELDS = 1, 2, 3, 4, 7, 16
_RECORD = bytes((RECORD,))
SHARED = 5 - FIELDS  # the base of a form whose one field is of a group
_SIGN = 1 << 63
NEVER = -_SIGN  # a moment before all: nothing has expired yet


def deadline_bytes(micros: int) -> bytes:
    """Encode a moment so that byte order is time order."""
    return (micros + _SIGN).to_bytes(8, "big")


def deadline_of(entry: bytes) -> int:
    """Decode the moment in a timer or expiry entry."""
    return int.from_bytes(entry[1:9], "big") - _SIGN


def event_timer(micros: int, key: bytes) -> bytes:
    """The entry of an event-time timer."""
    return bytes((EVENT,)) + deadline_bytes(micros) + key


def processing_timer(micros: int, key: bytes) -> bytes:
    """The entry of a processing-time timer."""
    return bytes((PROCESSING,)) + deadline_bytes(micros) + key


def expiry_note(moment: int, ttl: int, entry: bytes) -> bytes:
    """The entry that says when to look whether another has expired: some time later, so that several share it."""
    grain = max(ttl // 8, 1)
    return bytes((EXPIRY,)) + deadline_bytes(-(-moment // grain) * grain) + entry


def record_key(key: bytes) -> bytes:
    """The entry of a key's record."""
    return _RECORD + key


def part_entry(key: bytes, after: int, until: int) -> bytes:
    """The entry of a part of a pane, which counts in windows that start after one moment and end until another."""
    return bytes((PART,)) + key[:9] + deadline_bytes(after) + deadline_bytes(until) + key[9:]


def split_part_entry(entry: bytes) -> tuple[bytes, int, int]:
    """Take the entry of a part of a pane apart: the key of the pane, and the two moments."""
    return entry[1:10] + entry[26:], deadline_of(entry[9:18]), deadline_of(entry[17:26])


def field_prefix(field: int, key: bytes) -> bytes:
    """What the entries of one map or list of one key begin with."""
    return bytes((FIELDS + field,)) + len(key).to_bytes(4, "big") + key


def split_field_entry(entry: bytes) -> tuple[int, bytes, bytes]:
    """Take an entry of a map or list apart: field number, key, rest."""
    size = int.from_bytes(entry[1:5], "big")
    return entry[0] - FIELDS, entry[5 : 5 + size], entry[5 + size :]


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with a prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))


class Form:
    """The declared fields with their types: how records are packed, and where they lie."""

    def __init__(
        self,
        operator: str,
        fields: tuple[StateField, ...],
        types: dict[str, pa.DataType],
        base: int = 0,
        older: Form | None = None,
        migrate: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.operator, self.fields, self.base, self.older, self.migrate = operator, fields, base, older, migrate
        self.index = {field.name: i for i, field in enumerate(fields)}
        self.wires = [Wire(types[f.name], f"state {f.name!r} of operator {operator!r}") for f in fields]
        self.key_wires = [
            Wire(types[f"{f.name} key"], f"a key of state {f.name!r} of operator {operator!r}")
            if f.kind == "map"
            else None
            for f in fields
        ]
        self.plain = {  # values that do not expire, the state that is read and written most: where, what, how
            field.name: (at, field, self.wires[at])
            for at, field in enumerate(fields)
            if field.kind == "value" and not field.ttl
        }
        self.expires: bool = any(field.ttl for field in fields) or (older is not None and older.expires)

    def record(self, key: bytes) -> bytes:
        """The entry of a key's record."""
        return field_prefix(self.base, key) if self.base else record_key(key)

    def key_of_record(self, entry: bytes) -> bytes | None:
        """The key of an entry, if it is a record of this form."""
        if entry[0] != (FIELDS + self.base if self.base else RECORD):
            return None
        return entry[5:] if self.base else entry[1:]

    def owns(self, entry: bytes) -> bool:
        """Whether an entry is one of a list or map of this form."""
        return entry[0] >= FIELDS and self.field_at(entry[0] - FIELDS) is not None

    def number(self, at: int) -> int:
        """The number under which a field is stored."""
        return self.base + 1 + at if self.base else at

    def field_at(self, number: int) -> int | None:
        """The field that is stored under a number, if it is one of this form."""
        at = number - self.base - 1 if self.base else number
        return at if 0 <= at < len(self.fields) else None


@dataclass(frozen=True, slots=True)
class Stage:
    """One form of an operator's state as plain data, to be sent to tasks."""

    fields: tuple[StateField, ...]
    types: bytes  # Arrow schema of the types, by field name ("name key" for the keys of a map)
    base: int
    migrate: Code | None  # turns state of the stage after this one, which is older, into this


def form_of(operator: str, stages: tuple[Stage, ...]) -> Form:
    """Make the form of today, with the older ones behind it; newest first."""
    older: Form | None = None
    for stage in reversed(stages):
        types = {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(stage.types))}
        migrate = code.load(stage.migrate) if stage.migrate is not None else None
        older = Form(operator, stage.fields, types, stage.base, older, migrate)
    assert older is not None
    return older
