"""A spool as a streaming source of Spark: offsets are record numbers, so any epoch can be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from midstream.checkpoint.seals import seal
from midstream.checkpoint.storage import Storage
from midstream.errors import MidstreamError
from midstream.sources.spools import segments as layout
from midstream.sources.spools.columns import ddl
from midstream.sources.spools.segments import Mark, Spec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "midstream-spool"
_ROWS_PER_TASK = 20_000  # fewer are not worth a task of their own

Offset = dict[str, Any]  # {"spool": id, "record": number of the next record}


class SpoolSource(DataSource):
    """The data source behind `spark.readStream.format("midstream-spool")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns of the spool."""
        return ddl(layout.read_spec(self.options["directory"]).columns)

    def streamReader(self, schema: StructType) -> SpoolStreamReader:  # noqa: N802 (Spark's name)
        """Make the reader of one query."""
        return SpoolStreamReader(
            self.options["directory"],
            self.options["reader"],
            max_rows=int(self.options["max_rows"]),
            keep=float(self.options["keep"]),
            tasks=int(self.options["tasks"]),
        )


class RecordRange(InputPartition):
    """The records of one task."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end = start, end


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a spool epoch by epoch.

    Promised: an offset names the same records for ever, or reading them is an error.
    """

    def __init__(self, directory: str, reader: str, *, max_rows: int, keep: float, tasks: int) -> None:
        self._directory, self._reader = directory, reader
        self._max_rows, self._keep, self._tasks = max_rows, keep, tasks
        self._spec: Spec = layout.read_spec(directory)
        self._marked: int | None = None
        self._target: int | None = None  # with the trigger available_now: the end when the query began

    def initialOffset(self) -> Offset:  # noqa: N802
        """Begin with the oldest record, and from now on keep what this reader has not committed."""
        segments = layout.listing(self._directory)
        first = segments[0].first if segments else 0
        self._mark(first)
        return self._offset(first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most `max_rows_per_epoch` records, if it was given."""
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next epoch."""
        # Spark asks for an epoch once the one before is committed, but calls `commit` only when another one follows:
        # a full spool, read to its end, would then never be freed.
        self.commit(start)
        end = self._end() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["record"] + limit.max_rows)
        return self._offset(max(end, start["record"]))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """The end of the spool, for Spark's progress reports."""
        return self._offset(self._end())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: later records are not for this query."""
        self._target = self._end()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Share the records of an epoch among tasks."""
        if start["spool"] != self._spec.id:
            raise MidstreamError(
                f"{self._directory} is not the spool that this checkpoint has read. Use the old "
                "directory, or start with a new checkpoint"
            )
        first, last = start["record"], end["record"]
        step = max(_ROWS_PER_TASK, -(-(last - first) // self._tasks))
        return [RecordRange(at, min(at + step, last)) for at in range(first, last, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, RecordRange)
        return layout.read(self._directory, partition.start, partition.end)

    def commit(self, end: Offset) -> None:
        """Let the spool delete what came before, once it is old enough."""
        self._mark(end["record"])

    def _end(self) -> int:
        segments = layout.listing(self._directory)
        # A file name that is visible may not be durable yet: no epoch may rely on it.
        layout.sync_directory(self._directory)
        return segments[-1].end if segments else 0

    def _offset(self, record: int) -> Offset:
        return {"spool": self._spec.id, "record": record}

    def _mark(self, record: int) -> None:
        if record == self._marked:
            return
        path = os.path.join(layout.READERS, f"{self._reader}.json")
        Storage(self._directory).write(path, seal(Mark(record, self._keep)))
        self._marked = record
