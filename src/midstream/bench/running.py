"""Running a stream for an exact number of epochs, and how long each epoch took."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import midstream as ms
from midstream.bench.workbench import pause, quiet, set_log_level
from midstream.checkpoint import layout
from midstream.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMED_REGION = (
    "an epoch as Spark reports it (durationMs.triggerExecution), from asking the sources for offsets to "
    "Spark's commit: offset log, planning, reading, processing, state, change logs, commit record, sink, "
    "housekeeping. Left out: starting and stopping the query, the first third of the epochs (warm-up), the "
    "check of the results"
)
_END_SECONDS = 30

Durations = dict[str, float]  # step of an epoch, by Spark's name -> milliseconds


class _Enough(Exception):  # noqa: N818 -- the good end of a run
    """Raised into a `foreachBatch` query to end it between two epochs."""


@dataclass(frozen=True, slots=True)
class FlowRun:
    """What a run of a flow leaves."""

    times: list[Durations]
    committed: int  # epochs; a job may finish one more than it was asked for
    savepoint: str


def steady(times: Sequence[Durations], step: str = "triggerExecution") -> float:
    """The median of a step over the epochs, in milliseconds, without the first third.

    >>> steady([{"triggerExecution": ms} for ms in (900, 20, 30)])
    25.0
    """
    return float(median(one[step] for one in times[len(times) // 3 :]))


def run_batches(
    stream: DataFrame,
    each: Callable[[DataFrame], object],
    epochs: int,
    checkpoint: str,
    *,
    afterwards: Callable[[DataFrame], object],
) -> list[Durations]:
    """Run `each` on every epoch with `foreachBatch`; `afterwards` gets one more epoch, which is not timed.

    The query ends itself between two epochs: a `stop()` in the middle of a Python call can leave Spark
    with a stack overflow.
    """
    spark = stream.sparkSession
    state = _Ending()

    def on_batch(batch: DataFrame, epoch: int) -> None:
        if not state.wanted and epoch < epochs:
            each(batch)
            return
        if not state.wanted:
            afterwards(batch)
        set_log_level(spark, "OFF")  # put back by `quiet` below
        state.reached = True
        raise _Enough

    query = _started(stream.writeStream.foreachBatch(on_batch), checkpoint)
    try:
        while query.isActive:
            pause()
    finally:  # also after Ctrl-C
        state.wanted = True
        with quiet(spark):
            try:
                query.awaitTermination(_END_SECONDS)
            except StreamingQueryException:
                if not state.reached:
                    raise
            query.stop()
    return _times(query, epochs)


@dataclass(slots=True)
class _Ending:
    """Between the thread that waits for a query and the one that runs its epochs."""

    wanted: bool = False
    reached: bool = False


def run_query(spark: SparkSession, writer: DataStreamWriter, epochs: int, checkpoint: str) -> list[Durations]:
    """Run a query until that many epochs are committed; it has begun the next one when it is stopped."""
    query = _started(writer, checkpoint)
    try:
        _await_epoch(query, checkpoint, epochs - 1)
    finally:
        with quiet(spark):
            query.stop()
    return _times(query, epochs)


def run_flow(flow: ms.Flow, epochs: int, directory: str, **options: Any) -> FlowRun:
    """Run a flow until that many epochs are committed; the job finishes the current epoch before it stops."""
    checkpoint = os.path.join(directory, "checkpoint")
    job = flow.start(checkpoint, trigger=ms.every(0), cache=os.path.join(directory, "cache"), **options)
    assert job.query is not None
    with job:
        try:
            _await_epoch(job.query, os.path.join(checkpoint, layout.SPARK), epochs - 1)
        except StreamingQueryException:
            job.await_termination()  # raises the cause
            raise
    savepoint = job.savepoint(os.path.join(directory, "savepoint"))
    return FlowRun(_times(job.query, epochs), job.status.epoch + 1, savepoint)


def _started(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()


def _await_epoch(query: StreamingQuery, checkpoint: str, epoch: int) -> None:
    """Wait until an epoch is committed and reported; checking for a file costs less than asking Spark."""
    commit = os.path.join(checkpoint, "commits", str(epoch))
    while not os.path.exists(commit) or (query.lastProgress or {"batchId": -1})["batchId"] < epoch:
        if not query.isActive:
            query.awaitTermination()
            raise JobError(f"the query ended by itself before epoch {epoch}")
        pause()


def _times(query: StreamingQuery, epochs: int) -> list[Durations]:
    """The durations of epochs 0 to `epochs - 1`."""
    found = {progress["batchId"]: dict(progress["durationMs"]) for progress in query.recentProgress}
    missing = [epoch for epoch in range(epochs) if "triggerExecution" not in found.get(epoch, {})]
    if missing:
        raise JobError(f"Spark has not reported how long epochs {missing} took")
    return [found[epoch] for epoch in range(epochs)]
