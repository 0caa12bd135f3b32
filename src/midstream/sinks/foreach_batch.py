"""A function of the user, called with each committed epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from midstream.checkpoint.records import Staged
from midstream.errors import SinkError
from midstream.plan.code import capture_live, load
from midstream.sinks import directories, spooled
from midstream.sinks.contract import Staging, call
from midstream.sinks.spooled import SpooledSink

BatchFunction = Callable[[DataFrame, int], Any]


class ForeachBatch(SpooledSink):
    """Calls `fn(df, epoch)` on the driver with the rows of each committed epoch.

    Promised: `fn` sees only committed epochs, in ascending order, and on every call for an epoch the same
    rows, read back from the checkpoint. It is not called for epochs without rows. Not promised: that it is called
    once; so let it write by epoch (replace what the epoch wrote before, or skip an epoch it has seen). `df`
    is gone when `fn` returns.
    """

    guarantee = "each committed epoch at least once; exactly once where the function is idempotent by epoch"

    def __init__(self, fn: BatchFunction) -> None:
        """Call `fn` with a DataFrame and the epoch's number."""
        if not callable(fn):
            raise SinkError(f"foreach_batch needs a function of (df, epoch), not {fn!r}")
        self._code = capture_live(fn)

    def prepare(self, df: DataFrame, staging: Staging) -> DataFrame:
        """Take rows of all types that Spark can write as Parquet: Spark itself reads them again."""
        return df

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Call the function."""
        if not staged.files:
            return
        spooled.refuse_lost(staged)
        # With the schema given Spark starts no job to find it.
        df = spark.read.schema(spooled.schema(staged)).parquet(directories.spark_pattern(staged.location))
        fn: BatchFunction = load(self._code)
        try:
            fn(df, staged.epoch)
        except Exception as error:
            raise SinkError(
                f"sink {staged.sink!r}: {self._code.name} failed on epoch {staged.epoch}: "
                f"{type(error).__name__}: {error}. The epoch is committed, and the function is called with "
                "it again when the job is started again: remove the cause, or replace the sink"
            ) from error

    def describe(self) -> str:
        """Name the function, with a digest of its code."""
        return call("foreach_batch", f"{self._code.name}@{self._code.digest[:12]}")
