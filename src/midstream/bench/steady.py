"""Rows at a constant rate, as a streaming source whose clock ticks in milliseconds; Spark's own ticks in seconds.

Offsets are milliseconds since a given moment, so the rows of any epoch are known, and can be read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FORMAT = "midstream-steady"
_TASKS = 2

Offset = dict[str, int]  # {"milliseconds": since the first row}


def steady(spark: SparkSession, rate: int, since: float) -> DataFrame:
    """Return a stream of numbers 0, 1, 2, ...: `rate` per second since a moment, the column `value`."""
    spark.dataSource.register(SteadySource)
    return spark.readStream.format(_FORMAT).option("rate", rate).option("since", since).load()


class SteadySource(DataSource):
    """The data source behind `spark.readStream.format("midstream-steady")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _FORMAT

    def schema(self) -> str:
        """The numbers."""
        return "value long"

    def streamReader(self, schema: StructType) -> SteadyReader:  # noqa: N802 (Spark's name)
        """Make the reader of one query."""
        return SteadyReader(int(self.options["rate"]), float(self.options["since"]))


class Numbers(InputPartition):
    """The numbers of one task."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(None)
        self.first, self.end = first, end


class SteadyReader(DataSourceStreamReader):
    """Yields the numbers whose time has come.

    >>> reader = SteadyReader(rate=2000, since=0.0)
    >>> [(each.first, each.end) for each in reader.partitions({"milliseconds": 10}, {"milliseconds": 12})]
    [(20, 22), (22, 24)]
    >>> reader.partitions({"milliseconds": 12}, {"milliseconds": 12})
    []
    """

    def __init__(self, rate: int, since: float) -> None:
        self._rate, self._since = rate, since

    def initialOffset(self) -> Offset:  # noqa: N802
        """Begin with the first number."""
        return {"milliseconds": 0}

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
        """All numbers up to now."""
        return {"milliseconds": max(int(1000 * (time.time() - self._since)), start["milliseconds"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Numbers]:
        """Share the numbers of an epoch among tasks."""
        first, stop = self._number(start), self._number(end)
        step = max(-(-(stop - first) // _TASKS), 1)
        return [Numbers(at, min(at + step, stop)) for at in range(first, stop, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the numbers of a task."""
        assert isinstance(partition, Numbers)
        yield pa.record_batch({"value": np.arange(partition.first, partition.end)})

    def _number(self, offset: Offset) -> int:
        return offset["milliseconds"] * self._rate // 1000
