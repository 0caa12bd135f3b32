"""State of a group that is not of one key: what its keys share, and its copy of what is broadcast to all.

It lies in the store of the group, so that it is logged, moved and saved as all else. Each declared field is a form of
its own, under a key that is made of its declaration: declared otherwise, it is another one, and empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from midstream.errors import StateError
from midstream.plan.plan import BROADCAST, GROUP, StateField
from midstream.state.entries import NEVER, SHARED, Form, Stage
from midstream.state.keyed import GroupState
from midstream.state.stores.contract import Reader
from midstream.state.stores.memory import MemoryStore


class SharedForms:
    """Where the shared state of an operator lies."""

    def __init__(self, operator: str, stage: Stage) -> None:
        self.operator = operator
        self.types = {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(stage.types))}
        self.fields = {field.name: field for field in stage.fields}
        self._forms = {field.name: Form(operator, (field,), self.types, SHARED) for field in stage.fields}

    def bound(self, name: str, reader: Reader, now: int) -> GroupState:
        """Open the state of one field."""
        state = GroupState(self._forms[name], reader, now)
        state.bind(_key(self.fields[name]))
        return state


def _key(field: StateField) -> bytes:
    declared = "\0".join((field.scope, field.name, field.kind, field.key_type, field.type))
    return blake2b(declared.encode(), digest_size=16).digest()


class SharedState:
    """The shared state of one group in one epoch.

    Promised: while `receiving`, only broadcast state is there, to be read and written; else it is read-only, and
    decoded once however many keys read it: a map is a dictionary, a list a tuple.
    """

    def __init__(self, forms: SharedForms, reader: Reader, now: int) -> None:
        self.receiving = False
        self._forms, self._reader, self._now = forms, reader, now
        self._states: dict[str, GroupState] = {}  # what was touched
        self._copies: dict[str, Any] = {}  # of broadcast state
        self._marked: frozenset[str] = frozenset()  # what was touched before the mark

    def read(self, name: str) -> Any:
        """Return a value, or a list or map."""
        if self._forms.fields[name].scope == BROADCAST and not self.receiving:
            if name not in self._copies:
                self._copies[name] = self._copy(name)
            return self._copies[name]
        self._refuse_wrong_time(name)
        return self._state(name).read(name)

    def write(self, name: str, value: Any) -> None:
        """Set a value, or replace a whole list or map; `None` removes it."""
        self._refuse_wrong_time(name)
        self._state(name).write(name, value)

    def mark(self) -> None:
        """Note all that is changed from here on, so that it can be taken back."""
        self._marked = frozenset(self._states)
        for state in self._states.values():
            state.mark()

    def take_back(self) -> None:
        """Be as at the mark."""
        self._states = {name: state for name, state in self._states.items() if name in self._marked}
        for state in self._states.values():
            state.take_back()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the entries that have changed."""
        found: dict[bytes, bytes | None] = {}
        for state in self._states.values():
            state.release()
            found |= state.changes
        return found

    def _state(self, name: str) -> GroupState:
        if name not in self._states:
            self._states[name] = self._forms.bound(name, self._reader, self._now)
        return self._states[name]

    def _copy(self, name: str) -> Any:
        plain = self._state(name).plain(self._forms.fields[name])
        kind = self._forms.fields[name].kind
        return MappingProxyType(plain) if kind == "map" else tuple(plain) if kind == "list" else plain

    def _refuse_wrong_time(self, name: str) -> None:
        is_broadcast = self._forms.fields[name].scope == BROADCAST
        if is_broadcast and not self.receiving:
            raise StateError(
                f"state {name!r} of operator {self._forms.operator!r} is broadcast: it is alike in all groups, so only "
                "on_broadcast() may write it"
            )
        if self.receiving and not is_broadcast:
            raise StateError(
                f"state {name!r} of operator {self._forms.operator!r} is of one group, and on_broadcast() must do the "
                "same in all: it sees broadcast state only"
            )


class PortableShared:
    """The shared state of an operator as tables, and back: a row per value, per list and per entry of a map."""

    def __init__(self, forms: SharedForms) -> None:
        self._forms = forms
        self._named = {f"{field.scope}-{name}": field for name, field in forms.fields.items()}

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the tables with their schemas."""
        return {table: self._schema(field) for table, field in self._named.items()}

    def dump(self, reader: Reader, group: int) -> dict[str, pa.Table]:
        """Turn what a group has into tables; of broadcast state the first group's copy stands for all."""
        found = {}
        for table, field in self._named.items():
            rows = [] if field.scope == BROADCAST and group else [*self._rows(field, reader)]
            if field.scope == GROUP:
                rows = [(group, *row) for row in rows]
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema(field))
            arrays = [pa.array(column, f.type) for column, f in zip(columns, self._schema(field), strict=True)]
            found[table] = pa.table(arrays, schema=self._schema(field))
        return found

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of a table into entries."""
        field, found = self._named[table], dict[bytes, bytes | None]()
        for row in rows.to_pylist():
            with MemoryStore().reader() as reader:
                state = self._forms.bound(field.name, reader, NEVER)
                if field.kind == "map":
                    state.read(field.name)[row["map_key"]] = row["value"]
                else:
                    state.write(field.name, row["value"])
                state.release()
            found |= state.changes
        return [(entry, value) for entry, value in found.items() if value is not None]

    def _rows(self, field: StateField, reader: Reader) -> Iterator[tuple[Any, ...]]:
        state = self._forms.bound(field.name, reader, NEVER)
        if field.kind == "map":
            yield from state.plain(field).items()
        elif state.has_something():
            yield (state.plain(field),)

    def _schema(self, field: StateField) -> pa.Schema:
        type = self._forms.types[field.name]
        group = [("group", pa.int32())] if field.scope == GROUP else []
        key = [("map_key", self._forms.types[f"{field.name} key"])] if field.kind == "map" else []
        return pa.schema([*group, *key, ("value", pa.list_(type) if field.kind == "list" else type)])
