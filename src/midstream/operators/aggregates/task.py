"""The slot's task of a declared aggregate: sort, fold, read, merge, log — all on columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.operators.aggregates.declare import Compiled
from midstream.operators.aggregates.merge import Columns, Merger
from midstream.operators.task import Epoch, SlotTask, Work
from midstream.state.keys import Rows

TAG = b"\1"
_FOLDED = "folded"


@dataclass(frozen=True)
class AggregateTask(SlotTask):
    """Merges the rows of a slot into the accumulators of their keys and emits the new results."""

    compiled: Compiled
    combined: bool  # the JVM has folded the rows of each key already

    @property
    def comparable(self) -> bool:  # type: ignore[override]
        """Sketches of equal content may differ in their bytes."""
        return all(a.dtype != "object" for a in self.compiled.accumulators)

    @property
    def form(self) -> str:
        """Whether rows come folded."""
        return _FOLDED if self.combined else ""

    def as_of(self, epoch: Epoch, form: str) -> AggregateTask:
        """The same task in an earlier epoch."""
        return replace(self, epoch=epoch, combined=form == _FOLDED)

    def counts(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """How many rows each of those received stands for."""
        return rows.column("_rows").to_numpy() if self.combined else None

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot."""
        schema = self.output_schema()
        work.report.rows += int(np.sum(rows.column("_rows").to_numpy())) if self.combined else rows.num_rows
        if rows.num_rows == 0:
            return []
        merger = Merger(self.compiled)
        columns = [rows.column(key) for key in self.keys]
        arranged = self.codec(rows).arrange(columns, groups, TAG, stable=False)
        work.lap("sort")
        sent = {a.name: rows.column(a.name) for a in self.compiled.accumulators if a.name in rows.schema.names}
        new = merger.reduce(sent, arranged, self.combined)
        work.count_keys(columns, arranged, self.counts(rows))
        work.lap("fold")
        merged = self._merged(work, merger, arranged, new)
        self._log(work, merger, arranged, merged)
        chosen = pa.array(arranged.order[arranged.starts])
        keys = [column.take(chosen) for column in columns]
        results = merger.results(merged, [field.type for field in list(schema)[len(keys) :]])
        output = [k.cast(f.type) for k, f in zip(keys, schema, strict=False)] + results
        work.lap("emit")
        return [pa.record_batch(output, schema=schema)]

    def timed(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], column: str
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
        """Count rows of windows, and leave out those whose moment is null: they are late."""
        has_time = rows.column(column).is_valid()
        kept = rows.filter(has_time) if rows.column(column).null_count else rows
        total, taken = (
            (int(np.sum(r.column("_rows").to_numpy())) if self.combined else r.num_rows) for r in (rows, kept)
        )
        work.report.rows += total
        work.report.late += total - taken
        return kept, groups[has_time.to_numpy(zero_copy_only=False)] if kept is not rows else groups

    def _merged(self, work: Work, merger: Merger, rows: Rows, new: Columns) -> Columns:
        """Read what is stored, group by group, and merge."""
        stored: list[bytes | None] = []
        parts: list[tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_]]] = []
        matrix = None if merger.objects else rows.matrix
        for group, start, stop in spans(rows):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                if matrix is not None:
                    parts.append(reader.get_numbers(matrix[start:stop], merger.dtype))
                else:
                    stored += reader.get_many(rows.keys[start:stop])
            work.lap("read")
        old, known = merger.gathered(parts) if matrix is not None else merger.decode(stored)
        merged = merger.merge(old, new, known)
        work.lap("merge")
        return merged

    def _log(
        self,
        work: Work,
        merger: Merger,
        rows: Rows,
        merged: Columns,
        edits: Mapping[int, Mapping[bytes, bytes | None]] | None = None,
    ) -> None:
        """Log what changed, group by group, then other entries, `None` for deleted ones."""
        left = dict(edits or {})
        matrix = None if merger.objects or rows.matrix is None else merger.encode_fixed(merged)
        values = merger.encode(merged) if matrix is None else []
        for group, start, stop in spans(rows):
            others = left.pop(group, {})
            if matrix is not None and not others:
                assert rows.matrix is not None
                work.log.add_fixed(group, rows.matrix[start:stop], matrix[start:stop], merger.dtype)
            else:
                put = values[start:stop] if matrix is None else [v.tobytes() for v in matrix[start:stop]]
                work.log.add(group, [*rows.keys[start:stop], *others], [*put, *others.values()])
        for group, others in left.items():
            work.log.add(group, list(others), list(others.values()))
        work.lap("log")


def spans(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """The groups, and where the keys of each begin and end."""
    edges = [0, *(np.flatnonzero(np.diff(rows.groups)) + 1).tolist(), len(rows.groups)]
    return ((int(rows.groups[a]), a, b) for a, b in pairwise(edges) if b > a)
