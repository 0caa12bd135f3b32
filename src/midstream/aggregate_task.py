"""The slot's task of a declared aggregate: sort, fold, read, merge, log — all on columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.aggregates import Compiled
from midstream.aggregation import Columns, Merger
from midstream.slot import Epoch, SlotTask, Work
from midstream.state.keys import Rows

TAG = b"\1"
_FOLDED = "folded"


@dataclass(frozen=True)
class AggregateTask(SlotTask):
    """Merges the rows of a slot into the accumulators of their keys and gives out the new results."""

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
        work.report.keys += len(arranged.keys)
        work.lap("fold")
        merged = self._merge(work, merger, arranged, new)
        chosen = pa.array(arranged.order[arranged.starts])
        keys = [column.take(chosen) for column in columns]
        results = merger.results(merged, [field.type for field in list(schema)[len(keys) :]])
        output = [k.cast(f.type) for k, f in zip(keys, schema, strict=False)] + results
        work.lap("emit")
        return [pa.record_batch(output, schema=schema)]

    def _merge(self, work: Work, merger: Merger, rows: Rows, new: Columns) -> Columns:
        """Read what is stored, merge, and log what changed, group by group."""
        edges = np.flatnonzero(np.diff(rows.groups)) + 1
        spans = list(zip([0, *edges.tolist()], [*edges.tolist(), len(rows.groups)], strict=True))
        keys = rows.keys
        stored: list[bytes | None] = []
        for start, stop in spans:
            store = work.cache.view(int(rows.groups[start]))
            work.lap("apply")
            with store.reader() as reader:
                stored += reader.get_many(keys[start:stop])
            work.lap("read")
        old, known = merger.decode(stored)
        merged = merger.merge(old, new, known)
        work.lap("merge")
        if merger.objects or rows.matrix is None:
            values = merger.encode(merged) if merger.objects else [v.tobytes() for v in merger.encode_fixed(merged)]
            for start, stop in spans:
                work.log.add(int(rows.groups[start]), keys[start:stop], list(values[start:stop]))
        else:
            values_matrix = merger.encode_fixed(merged)
            for start, stop in spans:
                work.log.add_fixed(int(rows.groups[start]), rows.matrix[start:stop], values_matrix[start:stop])
        work.lap("log")
        return merged
