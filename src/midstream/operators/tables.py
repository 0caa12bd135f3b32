"""State as tables with the user's columns, and back: the portable form that savepoints have.

A keyed function has a table `record` (its values), a table per list and per map, `timers`, and what its groups share,
see `shared`; a declared aggregate has `record`: the results under the user's names, and the accumulators, from which it
is read back, under `_` names. Windows have one for each pane and key, and `parts`, see `window_panes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from midstream.operators.aggregates.declare import END, Compiled
from midstream.operators.aggregates.merge import Merger
from midstream.state import entries as forms
from midstream.state.keys import KeyCodec
from midstream.state.migration import migrated
from midstream.state.shared import PortableShared, SharedForms
from midstream.state.stores.contract import Reader
from midstream.state.values import micros_of, moment_of

Entries = Iterator[tuple[bytes, bytes]]
_TIME = pa.timestamp("us", tz="UTC")
_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class Portable:
    """What both kinds of keyed operator share: the names and schemas of their tables."""

    def __init__(self, keys: pa.Schema) -> None:
        self.codec = KeyCodec(keys)
        self.keys = keys
        self._taken = {name.lower() for name in keys.names}

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the tables with their schemas."""
        raise NotImplementedError

    def dump(self, reader: Reader, group: int = 0) -> dict[str, pa.Table]:
        """Turn the entries of a group into tables."""
        raise NotImplementedError

    def group_of(self, table: str, hashed: str, groups: int) -> str:
        """Say to which group a row of a table goes, as SQL; `hashed` is what keys are hashed by."""
        return f"cast(pmod(xxhash64({hashed}), {groups}L) as int)"

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of a table into entries."""
        raise NotImplementedError

    def _with_keys(self, fields: list[tuple[str, pa.DataType]]) -> pa.Schema:
        return pa.schema([*self.keys, *(pa.field(self._column(name), type) for name, type in fields)])

    def _column(self, name: str) -> str:
        """The name of a column; where a key or a result has it already, in upper or lower case, another one."""
        while name.lower() in self._taken:
            name += "_"
        return name

    def _encoded(self, rows: pa.RecordBatch) -> list[bytes]:
        columns = [rows.column(field.name).cast(field.type) for field in self.keys]
        return list(self.codec.encode(columns).to_pylist()) if rows.num_rows else []


class PortableFunction(Portable):
    """The state of a keyed function."""

    def __init__(
        self, form: forms.Form, keys: pa.Schema, types: pa.Schema, shared: PortableShared | None = None
    ) -> None:
        super().__init__(keys)
        self._shared = shared
        self._of_groups = shared.schemas() if shared is not None else {}
        self.fields = form.fields
        self.types = {field.name: field.type for field in types}
        self.form = form

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the tables with their schemas."""
        values: list[tuple[str, pa.DataType]] = []
        found: dict[str, pa.Schema] = {}
        for field in self.fields:
            ttl = [(f"{field.name}__expires", _TIME)] if field.ttl else []
            if field.kind == "value":
                values += [(field.name, self.types[field.name]), *ttl]
            else:
                values += [(f"{field.name}__length", pa.int64())] if field.kind == "list" else []
                first = (
                    ("position", pa.int64()) if field.kind == "list" else ("map_key", self.types[f"{field.name} key"])
                )
                found[f"{field.kind}-{field.name}"] = self._with_keys([first, ("value", self.types[field.name]), *ttl])
        found["timers"] = self._with_keys([("timer", pa.string()), ("at", _TIME)])
        return {"record": self._with_keys(values), **found, **self._of_groups}

    def group_of(self, table: str, hashed: str, groups: int) -> str:
        """Say to which group a row of a table goes: to its key's, to the one that it names, or to all."""
        if table not in self._of_groups:
            return super().group_of(table, hashed, groups)
        return "`group`" if "group" in self._of_groups[table].names else f"explode(sequence(0, {groups - 1}))"

    def dump(self, reader: Reader, group: int = 0) -> dict[str, pa.Table]:
        """Turn the entries of a group into tables."""
        rows: dict[str, list[tuple[bytes, list[Any]]]] = {name: [] for name in self.schemas()}
        for entry, stored in migrated(self.form, reader):
            tag = entry[0]
            of_record = self.form.key_of_record(entry)
            if of_record is not None:
                if any(item is not None for item in _unpack(stored)):
                    rows["record"].append((of_record, self._values(_unpack(stored))))
            elif tag in (forms.EVENT, forms.PROCESSING):
                kind = "event_time" if tag == forms.EVENT else "processing_time"
                rows["timers"].append((entry[9:], [kind, moment_of(forms.deadline_of(entry))]))
            elif tag >= forms.FIELDS:
                number, key, rest = forms.split_field_entry(entry)
                at = self.form.field_at(number)
                if at is None:
                    continue  # of an older form
                field = self.fields[at]
                value, expiry = _unpack(stored)
                first = int.from_bytes(rest, "big") if field.kind == "list" else self._map_key(at, _unpack(rest))
                item = [first, None if value is None else self.form.wires[at].unpack(value)]
                rows[f"{field.kind}-{field.name}"].append((key, [*item, moment_of(expiry)] if field.ttl else item))
        shared = self._shared.dump(reader, group) if self._shared is not None else {}
        return {
            name: shared[name] if name in shared else self._table(schema, rows[name])
            for name, schema in self.schemas().items()
        }

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of a table into entries."""
        if self._shared is not None and table in self._of_groups:
            return self._shared.load(table, rows)
        keys = self._encoded(rows)
        data = rows.to_pylist()
        entries: list[tuple[bytes, bytes]] = []
        for key, row in zip(keys, data, strict=True):
            if table == "record":
                entries += self._load_record(key, row)
            elif table == "timers":
                tag = forms.EVENT if row[self._column("timer")] == "event_time" else forms.PROCESSING
                at = micros_of(row[self._column("at")])
                entries.append((bytes((tag,)) + forms.deadline_bytes(at) + key, b"1"))
            else:
                entries += self._load_item(table.split("-", 1)[1], key, row)
        return entries

    def _map_key(self, at: int, packed: Any) -> Any:
        wire = self.form.key_wires[at]
        assert wire is not None
        return wire.unpack(packed)

    def _values(self, record: list[Any]) -> list[Any]:
        out: list[Any] = []
        for at, field in enumerate(self.fields):
            if field.kind == "value":
                item = record[at] if at < len(record) else None
                value, expiry = item if field.ttl and item is not None else (item, None)
                out.append(None if value is None else self.form.wires[at].unpack(value))
                if field.ttl:
                    out.append(None if expiry is None else moment_of(expiry))
            elif field.kind == "list":
                out.append(record[at] if at < len(record) else None)
        return out

    def _load_record(self, key: bytes, row: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
        entry, record = self.form.record(key), []
        for at, field in enumerate(self.fields):
            if field.kind != "value":
                record.append(row.get(self._column(f"{field.name}__length")))
                continue
            item = self.form.wires[at].checked(row[self._column(field.name)])
            if field.ttl and item is not None:
                expiry = micros_of(row[self._column(f"{field.name}__expires")])
                yield bytes((forms.EXPIRY,)) + forms.deadline_bytes(expiry) + entry, b"1"
                item = (item, expiry)
            record.append(item)
        yield entry, _pack(record)

    def _load_item(self, name: str, key: bytes, row: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
        at = self.form.index[name]
        field = self.fields[at]
        if field.kind == "list":
            rest = int(row[self._column("position")]).to_bytes(4, "big")
        else:
            wire = self.form.key_wires[at]
            assert wire is not None
            rest = _pack(wire.key(row[self._column("map_key")]))
        entry = forms.field_prefix(self.form.number(at), key) + rest
        expires = row[self._column(f"{name}__expires")] if field.ttl else None
        expiry = micros_of(expires) if expires is not None else 0
        if expiry:
            yield bytes((forms.EXPIRY,)) + forms.deadline_bytes(expiry) + entry, b"1"
        yield entry, _pack((self.form.wires[at].checked(row[self._column("value")]), expiry))

    def _table(self, schema: pa.Schema, rows: list[tuple[bytes, list[Any]]]) -> pa.Table:
        columns = self.codec.decode([key for key, _ in rows])
        for i, field in enumerate(list(schema)[len(columns) :]):
            columns.append(pa.array([row[i] for _, row in rows], field.type))
        return pa.table(columns, schema=schema)


class PortableAggregate(Portable):
    """The state of a declared aggregate."""

    def __init__(self, keys: pa.Schema, compiled: Compiled, results: pa.Schema) -> None:
        super().__init__(keys)
        self.merger = Merger(compiled)
        self.results = pa.schema([field.with_name(self._column(field.name)) for field in results])
        self._taken |= {name.lower() for name in self.results.names}

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the one table."""
        types = {"object": pa.binary(), "<i8": pa.int64(), "<f8": pa.float64()}
        kept = [pa.field(self._column(f"_{a.name}"), types[a.dtype]) for a in self.merger.accumulators]
        return {"record": pa.schema([*self.keys, *self.results, *kept])}

    def dump(self, reader: Reader, group: int = 0) -> dict[str, pa.Table]:
        """Turn the entries of a group into the table."""
        entries = list(reader.scan(bytes((forms.RECORD,)), bytes((forms.EVENT,))))
        arrays = self._arrays([entry[1:] for entry, _ in entries], [value for _, value in entries])
        return {"record": pa.table(arrays, schema=self.schemas()["record"])}

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of the table into entries."""
        keys = map(forms.record_key, self._encoded(rows))
        return list(zip(keys, self._stored(rows), strict=True))

    def _arrays(self, keys: list[bytes], stored: list[bytes]) -> list[pa.Array]:
        """The columns of keys, results and accumulators."""
        columns, _ = self.merger.decode(list(stored))
        arrays = self.codec.decode(keys)
        arrays += self.merger.results(columns, [field.type for field in self.results])
        for a in self.merger.accumulators:
            values = columns[a.name]
            if a.dtype == "object":
                values = [_pack(str(v) if a.decimal and v is not None else v) for v in values]
            arrays.append(pa.array(values, pa.binary() if a.dtype == "object" else None))
        return arrays

    def _stored(self, rows: pa.RecordBatch) -> list[bytes]:
        """The stored values of rows."""
        columns: dict[str, Any] = {}
        for a in self.merger.accumulators:
            column = rows.column(self._column(f"_{a.name}"))
            if a.dtype == "object":
                columns[a.name] = [_unpack(v) for v in column.to_pylist()]
            else:
                columns[a.name] = column.to_numpy(zero_copy_only=False).astype(np.dtype(a.dtype))
        return self.merger.encode(columns)


class PortableWindows(PortableAggregate):
    """The state of tumbling and sliding windows: panes, and parts of panes that count in some of their windows only."""

    _BOUNDS = ("_after", "_until")  # windows start after the first and end by the second, in microseconds

    def schemas(self) -> dict[str, pa.Schema]:
        """Return both tables."""
        panes = super().schemas()["record"]
        bounds = [pa.field(self._column(name), pa.int64()) for name in self._BOUNDS]
        return {"record": panes, "parts": pa.schema([*panes, *bounds])}

    def dump(self, reader: Reader, group: int = 0) -> dict[str, pa.Table]:
        """Turn the entries of a group into tables."""
        tag = bytes((forms.PART,))
        entries = list(reader.scan(tag, forms.after(tag)))
        parts = [forms.split_part_entry(entry) for entry, _ in entries]
        arrays = self._arrays([key for key, _, _ in parts], [value for _, value in entries])
        arrays += [pa.array([part[at] for part in parts], pa.int64()) for at in (1, 2)]
        return super().dump(reader, group) | {"parts": pa.table(arrays, schema=self.schemas()["parts"])}

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of a table into entries."""
        if table == "record":
            return super().load(table, rows)
        after, until = (rows.column(self._column(name)).to_pylist() for name in self._BOUNDS)
        return list(zip(map(forms.part_entry, self._encoded(rows), after, until), self._stored(rows), strict=True))


class PortableSessions(PortableAggregate):
    """The state of a session window: what is kept per session, and the timer of each."""

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows of the table into entries, and set the timer of each session, which is not in it, for its end."""
        ends = rows.column(self._column(f"_{END}")).to_pylist()
        timers = [(forms.event_timer(end, key), b"1") for end, key in zip(ends, self._encoded(rows), strict=True)]
        return super().load(table, rows) + timers


class TableForm(Protocol):
    """How the state of one operator becomes tables; pickled into tasks."""

    @property
    def operator(self) -> str:
        """Its id."""
        ...

    def portable(self) -> Portable:
        """Make the converter."""
        ...


@dataclass(frozen=True)
class PortableForm:
    """How declared state, or the accumulators of aggregates, become tables."""

    operator: str
    keys: bytes  # Arrow schema, serialised
    aggregate: tuple[type[PortableAggregate], Compiled, bytes] | None  # of a declared one; last: schema of its results
    function: tuple[forms.Stage, ...] | None
    shared: forms.Stage | None = None

    def portable(self) -> Portable:
        """Make the converter."""
        keys = pa.ipc.read_schema(pa.py_buffer(self.keys))
        if self.aggregate is not None:
            kind, compiled, results = self.aggregate
            return kind(keys, compiled, pa.ipc.read_schema(pa.py_buffer(results)))
        assert self.function is not None
        types = pa.ipc.read_schema(pa.py_buffer(self.function[0].types))
        shared = None if self.shared is None else PortableShared(SharedForms(self.operator, self.shared))
        return PortableFunction(forms.form_of(self.operator, self.function), keys, types, shared)
