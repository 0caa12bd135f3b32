"""Spark's settings for the session that an epoch's jobs run in, which is not the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SessionSettings:
    """Sets what an epoch needs, and remembers that: each setting is a call to Java."""

    def __init__(self) -> None:
        self._in_force: tuple[Any, int, int] | None = None  # Spark's session, partitions, rows

    def apply(self, session: SparkSession, partitions: int, rows_per_arrow_batch: int) -> None:
        """Let a session have so many partitions after a shuffle, and so many rows in an Arrow batch."""
        wanted = session._jsparkSession, partitions, rows_per_arrow_batch  # each batch has a Python session of its own
        if self._in_force != wanted:
            session.conf.set("spark.sql.shuffle.partitions", str(partitions))
            session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_per_arrow_batch))
            session.conf.set("spark.sql.adaptive.enabled", "false")
            session.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")  # what is kept lasts an epoch
            self._in_force = wanted
