"""Spark compiles the code of an operator once, not in every epoch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.testing import Live

SCHEMA = "key long, at timestamp"
START = datetime(2026, 1, 1)
WARM = 4  # epochs in which the plan of an epoch may still change: fewer keys than rows, with marker rows or without


def rows_of(epoch: int) -> list[tuple[int, datetime]]:
    return [(row % 20, START + timedelta(seconds=10 * epoch + row / 10)) for row in range(100)]


def windows(rows: ms.Stream) -> ms.Stream:
    timed = rows.with_watermark("at", "1 second", ahead="1 day")
    counts = timed.key_by("key").window(ms.tumbling("10 seconds")).aggregate("counts", n=ms.count())
    counts.late.sink("late", ms.sinks.noop())
    return counts


def best(rows: ms.Stream) -> ms.Stream:
    timed = rows.with_watermark("at", "1 second", ahead="1 day")
    found = timed.window(ms.sliding("10 seconds", "5 seconds")).top("best", by="key")
    found.late.sink("late", ms.sinks.noop())
    return found


def sessions(rows: ms.Stream) -> ms.Stream:
    timed = rows.with_watermark("at", "1 second", ahead="1 day")
    found = timed.key_by("key").window(ms.session("3 seconds")).aggregate("visits", n=ms.count())
    found.late.sink("late", ms.sinks.noop())
    return found


def first_and_last(rows: ms.Stream) -> ms.Stream:
    return rows.key_by("key").aggregate("ends", first=ms.first("at"), last=ms.last("at"))


def joined(rows: ms.Stream) -> ms.Stream:
    timed = rows.with_watermark("at", "1 second")
    other = timed.transform("renamed", lambda frame: frame.selectExpr("key as other", "at as at_too"))
    right = other.with_watermark("at_too", "1 second").key_by("other")
    return timed.key_by("key").join("pairs", right, within=ms.between("0 s", "1 s"))


@pytest.mark.parametrize("build", [windows, best, sessions, first_and_last, joined])
def test_later_epochs_are_run_by_code_that_is_compiled_already(
    spark: SparkSession, build: Callable[[ms.Stream], ms.Stream]
) -> None:
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled = []  # how often Spark has compiled something after an epoch, and how many epochs it was since the last
    with Live(spark, lambda flow, rows: build(rows).sink("out", ms.sinks.noop()), rows=SCHEMA) as live:
        for epoch in range(8):
            if epoch == WARM - 2:
                live.next_epoch()  # without rows: those of the next one have marker rows beside them
            before = len(live.progress)
            live.feed("rows", rows_of(epoch))
            compiled.append((metrics.METRIC_COMPILATION_TIME().getCount(), len(live.progress) - before))
    # Where a machine is slow, an epoch without rows may come between: its plan is another one, when it comes first.
    steady = [(one, other) for (one, _), (other, epochs) in pairwise(compiled[WARM:]) if epochs == 1]
    assert steady, compiled
    assert all(one == other for one, other in steady), compiled
