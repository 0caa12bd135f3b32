"""A kind of operator that Midstream does not have, made with its contracts alone: the greatest value of each key."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from midstream.operators.keyed import KeyedKind, checked_keys, layout_of
from midstream.operators.kind import Frames, Output, Resolving
from midstream.operators.kinds import register
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema, serialised, unknown_column
from midstream.operators.shuffle import Dispatch, Sent
from midstream.operators.tables import Portable, TableForm
from midstream.operators.task import SlotTask, Work
from midstream.plan.plan import KeyedOperator
from midstream.plan.sql import quote
from midstream.state.entries import RECORD, after, record_key
from midstream.state.stores.contract import Reader


class Greatest(KeyedOperator, frozen=True, kw_only=True, tag="greatest"):
    """Gives out the greatest value that a key has had, whenever it has rows."""

    column: str

    @property
    def signature(self) -> str:
        """One number."""
        return f"greatest {self.column}"


@dataclass(frozen=True)
class GreatestTask(SlotTask):
    """Reads what the keys of a slot had, and keeps what is greater."""

    column: str = ""

    def work(self, work: Work, rows: pa.RecordBatch, groups: Any, owned: frozenset[int]) -> list[pa.RecordBatch]:
        """Process the rows of a slot."""
        arranged = self.codec(rows).arrange([rows.column(key) for key in self.keys], groups)
        ordered = rows.take(pa.array(arranged.order))
        values, edges = ordered.column(self.column).to_pylist(), [*arranged.starts.tolist(), rows.num_rows]
        found = [max(values[first:last]) for first, last in pairwise(edges)]
        work.report.rows, work.report.keys = rows.num_rows, len(found)
        for group in sorted(set(arranged.groups.tolist())):
            mine = np.flatnonzero(arranged.groups == group).tolist()
            entries = [record_key(arranged.keys[i]) for i in mine]
            with work.cache.view(group).reader() as reader:
                stored = reader.get_many(entries)
            for i, before in zip(mine, stored, strict=True):
                if before is not None:
                    found[i] = max(found[i], struct.unpack(">q", before)[0])
            changed = sorted(zip(entries, (struct.pack(">q", found[i]) for i in mine), strict=True))
            work.log.add(group, [entry for entry, _ in changed], [value for _, value in changed])
        keys = [ordered.column(key).take(pa.array(arranged.starts)) for key in self.keys]
        return [pa.record_batch([*keys, pa.array(found, pa.int64())], schema=self.output_schema())]


class GreatestTable(Portable):
    """One table: the key, and its greatest value."""

    def schemas(self) -> dict[str, pa.Schema]:
        """Name it."""
        return {"record": self._with_keys([("greatest", pa.int64())])}

    def dump(self, reader: Reader, group: int = 0) -> dict[str, pa.Table]:
        """Turn entries into rows."""
        tag = bytes((RECORD,))
        entries = list(reader.scan(tag, after(tag)))
        keys = self.codec.decode([entry[1:] for entry, _ in entries])
        values = pa.array([struct.unpack(">q", value)[0] for _, value in entries], pa.int64())
        return {"record": pa.table([*keys, values], schema=self.schemas()["record"])}

    def load(self, table: str, rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Turn rows into entries."""
        arranged = self.codec.arrange(
            [rows.column(name) for name in self.keys.names], np.zeros(rows.num_rows, np.int32)
        )
        values = rows.column("greatest").to_pylist()
        first = [int(arranged.order[start]) for start in arranged.starts]
        return [(record_key(key), struct.pack(">q", values[i])) for key, i in zip(arranged.keys, first, strict=True)]


@dataclass(frozen=True)
class GreatestForm:
    """Makes the converter in a task."""

    operator: str
    keys: bytes

    def portable(self) -> Portable:
        """Make it."""
        return GreatestTable(pa.ipc.read_schema(pa.py_buffer(self.keys)))


class GreatestKind(KeyedKind[Greatest]):
    """What `Greatest` means."""

    def resolve(self, operator: Greatest, rows: Resolving) -> Output:
        """Check the column."""
        (schema,) = rows.inputs
        keys = checked_keys(operator, rows, operator.keys, None)
        if operator.column not in schema.names:
            raise unknown_column(f"greatest {operator.id!r}", operator.column, schema)
        output = StructType([*keys, schema[operator.column]])
        layout = layout_of(keys, [f"greatest {operator.column}"])
        return Output(output, None, Keyed(schema, keys, None, (), arrow_schema(output), layout=layout))

    def dispatch(self, operator: Greatest, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Send the column."""
        table, columns = frames.table(operator.inputs[0]), {operator.column: quote(operator.column)}
        task = GreatestTask(**common, column=operator.column)
        return Dispatch(Sent(table, columns, with_keys=True), task, frames.resolved.schemas[operator.id])

    def form(self, operator: Greatest, resolved: Resolved) -> TableForm:
        """One table."""
        return GreatestForm(operator.id, serialised(arrow_schema(resolved.keyed[operator.id].keys)))


register(Greatest, GreatestKind())
