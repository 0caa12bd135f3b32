"""The change log of a slot as a run: what an epoch has changed, sorted, is what later epochs read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from midstream.checkpoint.records import Report
from midstream.checkpoint.storage import Storage
from midstream.state.changelog import LogWriter
from midstream.state.runs.file import checksum_of_frame, encoded
from midstream.state.runs.keys import KeyColumn, key_column, rows_of
from midstream.state.runs.part import Part, merged
from midstream.state.runs.values import ByteValues, NumberValues, ValueColumn


@dataclass(frozen=True, slots=True)
class Older:
    """What the newest runs of a group have of it, to be merged with what is written now."""

    parts: list[Part]  # the newest first
    whole: bool  # they are all that the group has


class RunWriter(LogWriter):
    """Collects the changes of a slot, group by group, and writes them as a run, merged with older ones where it may."""

    def __init__(self) -> None:
        super().__init__()
        self.older: dict[int, Older] = {}  # by group

    def write(self, storage: Storage, directory: str, report: Report, *, content: bool = True) -> str:
        """Write the run, the report in its footer, and return its path; without `content` values are not compared."""
        self._note(report, content=content)
        parts = {group: self._part(keys, values) for group, keys, values in self._batches if len(keys)}
        for group, older in self.older.items():
            newest = [parts[group]] if group in parts else []
            parts[group] = merged([*newest, *older.parts], whole=older.whole)
        counts = {group: len(older.parts) for group, older in self.older.items()}
        report.run = [(group, len(part), counts.get(group, 0)) for group, part in parts.items()]
        about = {"midstream": msgspec.json.encode(report).decode()}
        stored = {group: part for group, part in parts.items() if len(part)}
        return write_run(storage, f"{directory}/{report.slot:04}", stored, about)

    def _part(self, keys: pa.Array, values: pa.Array) -> Part:
        found: ValueColumn
        if self._numbers is not None and pa.types.is_fixed_size_binary(values.type):
            found = NumberValues.of_rows(self._numbers, rows_of(values))
        else:
            found = ByteValues.of(values)
        return sorted_part(key_column(keys), found)


def write_run(storage: Storage, stem: str, parts: Mapping[int, Part], about: Mapping[str, str]) -> str:
    """Write a run and return its path, which ends in the checksum of its frame."""
    buffer = encoded(parts, about)
    path = f"{stem}-{os.urandom(6).hex()}-{checksum_of_frame(buffer):016x}.arrow"
    storage.write_new(path, buffer)
    return path


def sorted_part(keys: KeyColumn, values: ValueColumn) -> Part:
    """Return keys and their values in the order of the keys; of a key that comes twice the last counts."""
    order = keys.order()
    is_new = keys.differ_in(order)
    if is_new.all() and (np.diff(order) == 1).all():  # as it mostly is
        return Part(keys, values)
    last = order[np.append(is_new[1:], True)]
    return Part(keys.take(last), values.take(last))
