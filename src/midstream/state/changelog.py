"""The change log: what one slot changed in one epoch, one Arrow file, and its report to the driver.

One record batch with columns `key` and `value`, group after group; a null value is a deletion. The footer carries the
report, which says how many rows each group has: the file is the report, and nothing else passes from a task to the
driver. The name ends in the file's checksum.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from midstream.checkpoint.checksum import Hasher, checked_content, digest, named_by_content
from midstream.checkpoint.records import Report
from midstream.checkpoint.storage import Storage
from midstream.errors import StateError
from midstream.state.keys import Bytes
from midstream.state.stores.contract import Changes

_MOST_IN_BINARY = 1 << 30  # bytes: Arrow counts to twice that in a column of plain binary


class LogWriter:
    """Collects the changes of a slot, group by group, and writes them in one go."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, pa.Array, pa.Array]] = []
        self._numbers: np.dtype[Any] | None = None

    def add_fixed(self, group: int, keys: Bytes, values: Bytes, numbers: np.dtype[Any] | None = None) -> None:
        """Add puts whose keys and values are the rows of two byte matrices.

        Args:
            group: that they are of.
            keys: one in each row.
            values: one in each row.
            numbers: which numbers each value is made of, where that is known; the same for all of a log.
        """
        self._batches.append((group, _fixed(keys), _fixed(values)))
        self._numbers = numbers

    def add(self, group: int, keys: list[bytes], values: list[bytes | None]) -> None:
        """Add puts and, where the value is `None`, deletions."""
        self._batches.append((group, pa.array(keys, pa.binary()), pa.array(values, pa.binary())))

    def digests(self, groups: Iterable[int], *, values: bool) -> dict[int, int]:
        """Return a checksum of what was logged for each of some groups; without `values`, of the keys alone."""
        found = {group: Hasher() for group in groups}
        for group, *arrays in self._batches:
            if group in found:
                for array in arrays[: 2 if values else 1]:
                    found[group].update(repr(array.to_pylist()).encode())
        return {group: digest(hasher) for group, hasher in found.items()}

    def take(self) -> dict[int, dict[bytes, bytes | None]]:
        """Return all that was added, group by group, and begin anew."""
        taken = {
            group: dict(zip(keys.to_pylist(), values.to_pylist(), strict=True)) for group, keys, values in self._batches
        }
        self._batches = []
        return taken

    def write(self, storage: Storage, directory: str, report: Report, *, content: bool = True) -> str:
        """Write the file and return its path; without `content` the state is not part of the checksum."""
        self._note(report, content=content)
        schemas = {(keys.type, values.type) for _, keys, values in self._batches}
        types = schemas.pop() if len(schemas) == 1 else (pa.binary(), pa.binary())
        if pa.binary() in types and report.bytes > _MOST_IN_BINARY:
            types = (pa.large_binary(), pa.large_binary())
        columns = [_concatenated((batch[i] for batch in self._batches), each) for i, each in enumerate(types, start=1)]
        sink = pa.BufferOutputStream()
        footer = {"midstream": msgspec.json.encode(report).decode()}
        batch = pa.record_batch(columns, ["key", "value"])
        with pa.ipc.new_file(sink, batch.schema, metadata=footer) as writer:
            writer.write_batch(batch)
        buffer = sink.getvalue()
        path = named_by_content(f"{directory}/{report.slot:04}-{os.urandom(6).hex()}", buffer)
        storage.write_new(path, buffer)
        return path

    def _note(self, report: Report, *, content: bool) -> None:
        """Say in the report what is logged: of which groups, how much, and with which checksum."""
        report.groups = [(group, len(keys)) for group, keys, _ in self._batches]
        hasher = Hasher()
        for _, *arrays in self._batches:
            report.bytes += sum(array.nbytes for array in arrays)
            for array in arrays[: 2 if content else 1]:
                for buffer in array.buffers():
                    if buffer is not None:
                        hasher.update(buffer)
        report.content = digest(hasher)


def read_report(storage: Storage, path: str) -> Report:
    """Read the report of a change log."""
    reader = pa.ipc.open_file(storage.buffer(path))
    return msgspec.json.decode(reader.metadata[b"midstream"], type=Report)


class Log:
    """An open change log."""

    def __init__(self, storage: Storage, path: str) -> None:
        where = storage.path(path)
        try:
            reader = pa.ipc.open_file(checked_content(path, storage.buffer(path)))
            report = msgspec.json.decode(reader.metadata[b"midstream"], type=Report)
            self._rows = changes_of(*reader.get_batch(0).columns)
        except (OSError, pa.ArrowInvalid, msgspec.MsgspecError) as error:
            raise StateError(
                f"the change log {where} is missing or damaged ({error}). Restore it from a copy of the checkpoint "
                "and start again with the same checkpoint, or start from a savepoint"
            ) from error
        ends = accumulate(count for _, count in report.groups)
        self._at = {group: (end - count, end) for (group, count), end in zip(report.groups, ends, strict=True)}

    def changes(self, group: int) -> Records | Rows | None:
        """Return what the log changed in a group."""
        at = self._at.get(group)
        return None if at is None else self._rows.part(*at)


class Records:
    """Puts whose keys and values are each of one width, as `Changes` for a store."""

    def __init__(self, records: memoryview, widths: tuple[int, int]) -> None:
        self._records, self._widths = records, widths

    def part(self, start: int, stop: int) -> Records:
        """Some of the rows."""
        size = sum(self._widths)
        return Records(self._records[start * size : stop * size], self._widths)

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        """Return key and value of every put."""
        return struct.iter_unpack("{}s{}s".format(*self._widths), self._records)

    def deletes(self) -> Iterable[bytes]:
        """Return no key."""
        return ()


class Rows:
    """Puts and deletions of any width, as `Changes` for a store."""

    def __init__(self, keys: pa.Array, values: pa.Array) -> None:
        self._keys, self._values = keys, values

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        return Rows(self._keys.slice(start, stop - start), self._values.slice(start, stop - start))

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        """Return key and value of every put."""
        pairs = zip(self._keys.to_pylist(), self._values.to_pylist(), strict=True)
        return pairs if not self._values.null_count else ((key, value) for key, value in pairs if value is not None)

    def deletes(self) -> Iterable[bytes]:
        """Return the key of every deletion."""
        return self._keys.filter(self._values.is_null()).to_pylist() if self._values.null_count else ()


def changes_of(keys: pa.Array, values: pa.Array) -> Records | Rows:
    """Return two columns of a change log as `Changes` for a store."""
    widths = _width(keys), _width(values)
    if not all(widths):
        return Rows(keys, values)
    return Records(memoryview(np.concatenate([_matrix(keys), _matrix(values)], axis=1).tobytes()), widths)


class Latest:
    """What several changes of a group, one after the other, leave: each key once."""

    def __init__(self, changes: Iterable[Changes]) -> None:
        self._entries: dict[bytes, bytes | None] = {}
        for each in changes:
            self._entries.update(each.puts())
            self._entries.update(dict.fromkeys(each.deletes()))

    def puts(self) -> Iterable[tuple[bytes, bytes]]:
        """Return key and value of every put."""
        return ((key, value) for key, value in self._entries.items() if value is not None)

    def deletes(self) -> Iterable[bytes]:
        """Return the key of every deletion."""
        return (key for key, value in self._entries.items() if value is None)


def _concatenated(arrays: Iterable[pa.Array], type: pa.DataType) -> pa.Array:
    found = [array.cast(type) for array in arrays]
    return pa.concat_arrays(found) if found else pa.array([], type)


def _fixed(matrix: Bytes) -> pa.Array:
    matrix = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(matrix.shape[1]), len(matrix), [None, pa.py_buffer(matrix)])


def _width(array: pa.Array) -> int:
    return array.type.byte_width if pa.types.is_fixed_size_binary(array.type) and not array.null_count else 0


def _matrix(array: pa.Array) -> Any:
    width = array.type.byte_width
    flat = np.frombuffer(array.buffers()[1], np.uint8, count=len(array) * width, offset=array.offset * width)
    return flat.reshape(len(array), width)
