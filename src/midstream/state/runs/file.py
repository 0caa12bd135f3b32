"""The file of a run: one Arrow record batch, group after group, keys in order; its footer says where each group lies.

Columns are the key, what finds it where keys have many widths, the values, and which keys are deleted, if some are.
Their types are plain, nothing is compressed, and the file is mapped: what is not looked at is not read. What a file has
of a group is verified when it is looked at first: the name of the file has the checksum of all but the rows, and the
footer has those of the rows of each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from midstream.checkpoint.checksum import Hasher, digest
from midstream.errors import StateError
from midstream.state.runs.hashes import flat
from midstream.state.runs.keys import FixedKeys, IntegerKeys, KeyColumn, VariedKeys, concatenated, rows_of
from midstream.state.runs.part import Part
from midstream.state.runs.values import ByteValues, NumberValues, ValueColumn, joined

KEY, VALUE, GONE = "_key", "_value", "_gone"
_HASH, _PLACE = "_hash", "_place"
_FOOTER = "midstream.run"
_MAGIC = 8  # bytes that a file of Arrow begins with
_TAIL = 10  # bytes that it ends with: the length of its footer, and six more


_NO_BYTES = pa.array([], pa.binary())
_NOTHING: tuple[KeyColumn, ValueColumn] = VariedKeys.indexed(_NO_BYTES), ByteValues(_NO_BYTES)


class Extent(NamedTuple):
    """Where a group lies in a run."""

    start: int
    stop: int
    checksum: int


class _Footer(msgspec.Struct, frozen=True):
    """How to read the columns, and where the groups are."""

    groups: tuple[tuple[int, int, int], ...]  # group, rows, checksum; in the order of the rows
    prefix: str | None = None  # of keys that are integers, in hexadecimal
    numbers: tuple[tuple[str, str], ...] = ()  # of values that are: name and type


def encoded(parts: Mapping[int, Part], about: Mapping[str, str]) -> pa.Buffer:
    """Return the content of a run's file.

    Args:
        parts: by group, none empty.
        about: what the footer says besides, by name.
    """
    keys, values = _NOTHING
    if parts:
        keys, values = _keys_of(list(parts.values())), joined([part.values for part in parts.values()])
    columns = {**_key_columns(keys), **_value_columns(values)}
    edges = np.cumsum([0, *map(len, parts.values())]).tolist()
    groups = tuple(
        (group, stop - start, _checksum_of_rows(columns, start, stop))
        for group, start, stop in zip(parts, edges[:-1], edges[1:], strict=True)
    )
    prefix = keys.prefix.hex() if isinstance(keys, IntegerKeys) else None
    dtype = values.dtype if isinstance(values, NumberValues) else np.dtype([])
    numbers = tuple((name, dtype[name].str) for name in dtype.names or ())
    footer = msgspec.json.encode(_Footer(groups, prefix, numbers)).decode()
    batch = pa.record_batch(list(columns.values()), list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, metadata={**about, _FOOTER: footer}) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def checksum_of_frame(content: pa.Buffer) -> int:
    """Return the checksum of all of a run's file but its rows: what says where they are, and what they are.

    Reads a few kilobytes. Raises a `ValueError` where there is no such file.
    """
    view = memoryview(content)
    start = _MAGIC
    for _ in range(2):  # the messages of the schema and of the batch: a mark, a length, and what it says
        start += 8 + _number(view, start + 4)
    stop = len(view) - _TAIL - _number(view, len(view) - _TAIL)
    if not _MAGIC < start <= stop:
        raise ValueError("it is cut off, or not a run")
    hasher = Hasher(view[:start])
    hasher.update(view[stop:])
    return digest(hasher)


class RunFile:
    """An open run."""

    def __init__(self, content: pa.Buffer, frame: int, where: str) -> None:
        """Open what `encoded` has made.

        Args:
            content: of the file, mapped.
            frame: its checksum, as the name of the file has it.
            where: the file is, for messages.
        """
        self._where = where
        try:
            if checksum_of_frame(content) != frame:
                raise ValueError("its checksum does not match")
            reader = pa.ipc.open_file(content)
            self._footer = msgspec.json.decode(reader.metadata[_FOOTER.encode()], type=_Footer)
            batch = reader.get_batch(0)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:  # msgspec raises a ValueError
            raise self._damaged(error) from error
        self._columns: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
        edges = np.cumsum([0, *(rows for _, rows, _ in self._footer.groups)]).tolist()
        self.extents = {
            group: Extent(start, stop, expected)
            for (group, _, expected), start, stop in zip(self._footer.groups, edges[:-1], edges[1:], strict=True)
        }
        self.bytes_per_entry = content.size / max(edges[-1], 1)
        self._verified: set[int] = set()

    def part(self, group: int) -> Part:
        """Return what the run has of a group, verified."""
        at = self.extents.get(group)
        if at is None:
            raise damaged(self._where, f"it has nothing of group {group}, against the commit record")
        if group not in self._verified:
            if _checksum_of_rows(self._columns, at.start, at.stop) != at.checksum:
                raise self._damaged(f"the checksum of group {group} does not match")
            self._verified.add(group)
        return Part(self._keys(at), self._values(at))

    def _keys(self, at: Extent) -> KeyColumn:
        keys = self._columns[KEY]
        if self._footer.prefix is not None:
            return IntegerKeys(bytes.fromhex(self._footer.prefix), keys.to_numpy()[at.start : at.stop])
        if pa.types.is_fixed_size_binary(keys.type):
            return FixedKeys(rows_of(keys)[at.start : at.stop])
        hashes, places = (self._columns[name].to_numpy()[at.start : at.stop] for name in (_HASH, _PLACE))
        return VariedKeys(keys.slice(at.start, at.stop - at.start), hashes, places)

    def _values(self, at: Extent) -> ValueColumn:
        flags = self._columns.get(GONE)
        gone = flags.to_numpy()[at.start : at.stop] if flags is not None else None
        if not self._footer.numbers:
            return ByteValues(self._columns[VALUE].slice(at.start, at.stop - at.start), gone)
        columns = tuple(self._columns[name].to_numpy()[at.start : at.stop] for name, _ in self._footer.numbers)
        return NumberValues(np.dtype(list(self._footer.numbers)), columns, gone)

    def _damaged(self, why: object) -> StateError:
        return damaged(self._where, why)


def damaged(where: str, why: object) -> StateError:
    """Say that a run cannot be read, and what to do."""
    return StateError(
        f"the run {where} is missing or damaged ({why}). Restore it from a copy of the checkpoint and start "
        "again with the same checkpoint, or start from a savepoint"
    )


def _keys_of(parts: list[Part]) -> KeyColumn:
    """Return the keys of all groups in one form; the index of each group is its own."""
    keys = concatenated([part.keys for part in parts])
    if not isinstance(keys, VariedKeys):
        return keys
    indexed = [p.keys if isinstance(p.keys, VariedKeys) else VariedKeys.indexed(p.keys.array()) for p in parts]
    hashes, places = ([getattr(each, name) for each in indexed] for name in ("hashes", "places"))
    return VariedKeys(keys.keys, np.concatenate(hashes), np.concatenate(places))


def _key_columns(keys: KeyColumn) -> dict[str, pa.Array]:
    if isinstance(keys, IntegerKeys):
        return {KEY: pa.array(keys.values)}
    if isinstance(keys, FixedKeys):
        content = pa.py_buffer(np.ascontiguousarray(keys.rows))
        return {KEY: pa.Array.from_buffers(pa.binary(keys.width), len(keys), [None, content])}
    assert isinstance(keys, VariedKeys)
    return {KEY: keys.keys, _HASH: pa.array(keys.hashes), _PLACE: pa.array(keys.places)}


def _value_columns(values: ValueColumn) -> dict[str, pa.Array]:
    found = {GONE: pa.array(values.gone)} if values.gone is not None else {}
    if isinstance(values, NumberValues):
        names = values.dtype.names or ()
        return {**{n: pa.array(c) for n, c in zip(names, values.columns, strict=True)}, **found}
    assert isinstance(values, ByteValues)
    return {VALUE: values.array, **found}


def _checksum_of_rows(columns: Mapping[str, pa.Array], start: int, stop: int) -> int:
    """Return the checksum of some rows, whatever else the file has."""
    hasher = Hasher()
    for array in columns.values():
        if pa.types.is_fixed_size_binary(array.type):
            hasher.update(pa.py_buffer(rows_of(array)[start:stop]))
        elif pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            offsets, content = flat(array.slice(start, stop - start))
            hasher.update(pa.py_buffer(np.diff(offsets)))
            hasher.update(pa.py_buffer(content))
        else:
            hasher.update(pa.py_buffer(array.to_numpy()[start:stop]))
    return digest(hasher)


def _number(view: memoryview, at: int) -> int:
    """Read a length that a file of Arrow has somewhere."""
    if not 0 <= at <= len(view) - 4:
        raise ValueError("it is cut off, or not a run")
    return int.from_bytes(view[at : at + 4], "little")
