"""What a job that has ended, or cannot go on, says to those who ask it for more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import After, Event, Exchanging, Step

SCHEMA = "k long, v long"


class Count(ms.KeyedFunction):
    n = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.n += len(rows)
        yield key, self.n


def test_a_job_that_has_ended_forgets_and_cancels_nothing(spark: SparkSession) -> None:
    def build(flow: ms.Flow, a: ms.Stream) -> None:
        counted = a.key_by("k").process("counted", Count(), schema=SCHEMA)
        counted.sink("out", ms.sinks.memory())

    with testing.Live(spark, build, a=SCHEMA) as live:
        live.feed("a", [(1, 1)])
        removed = live.modify(ms.remove("counted"))
        live.job.stop()
        with pytest.raises(ms.JobError, match="has ended; start it again to let it forget operator 'counted'"):
            live.job.forget("counted")
        with pytest.raises(ms.JobError, match="cannot be cancelled: the job has ended"):
            removed.cancel()
        with pytest.raises(ms.JobError, match="has ended"):
            live.job.modify(ms.replace("counted", Count()))


def test_a_listener_that_wants_to_leave_the_process_ends_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """Spark waits for an answer of every epoch: an exception that is none of Python's `Exception` gave it none."""

    def leave(event: Event) -> None:
        if isinstance(event, After) and event.step is Step.RUN:
            sys.exit(3)

    flow = ms.Flow("leaving")
    rows = flow.source("rows", testing.source(spark, str(tmp_path / "a"), SCHEMA, [[(1, 1)]]))
    rows.sink("out", ms.sinks.noop())
    job = flow.start(tmp_path / "checkpoint", trigger=ms.every(0), cache=tmp_path / "cache", listener=leave)
    with pytest.raises(SystemExit):
        job.await_termination(60)
    assert not job.is_active


def test_a_query_that_cannot_be_exchanged_ends_the_job_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    """The old query is stopped by then: a job without a query must not look as if it had come to its end."""
    is_exchanged = False

    def fails(event: Event) -> None:
        if isinstance(event, Exchanging) and event.step == "offsets" and is_exchanged:
            raise OSError("no room for the offsets")

    flow = ms.Flow("exchanged")
    rows = flow.source("rows", testing.source(spark, str(tmp_path / "a"), SCHEMA, [[(1, 1)]]))
    rows.sink("out", ms.sinks.noop())
    testing.source(spark, str(tmp_path / "b"), SCHEMA, [[(2, 2)]])
    job = flow.start(tmp_path / "checkpoint", trigger=ms.every(0), cache=tmp_path / "cache", listener=fails)
    is_exchanged = True
    more = [
        ms.add_source("more", lambda spark: spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "b"))),
        ms.insert("all", ms.union("more"), after="rows"),
    ]
    with pytest.raises(ms.MidstreamError):
        job.modify(*more).wait(60)
    with pytest.raises(Exception, match="no room for the offsets"):
        job.await_termination(60)
    assert not job.is_active
