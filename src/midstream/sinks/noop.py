"""Nowhere: for benchmarks, and for flows that exist for their state."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from midstream.checkpoint.records import Staged
from midstream.sinks.contract import Sink, Staging, call


class Noop(Sink):
    """Computes every row and drops it.

    Promised: the flow before the sink runs to its end in every epoch. Not promised: that any row is seen by
    anyone.
    """

    guarantee = "every row of each committed epoch is computed, none is kept"

    def stage(self, df: DataFrame, staging: Staging) -> Staged:
        """Compute the rows."""
        df.write.format("noop").mode("overwrite").save()
        return Staged(staging.sink, staging.job, staging.epoch, "", ())

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Do nothing: nothing was staged."""

    def clean(self, what: Staging | Staged) -> None:
        """Do nothing: nothing was staged."""

    def describe(self) -> str:
        """Name the sink."""
        return call("noop")
