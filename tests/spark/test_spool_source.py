"""A spool as the source of a job: each record in exactly one epoch, over restarts, savepoints and merging."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.sources.spools import columns, segments
from midstream.sources.spools import writer as spool_writer
from midstream.sources.spools.writer import SpoolWriter
from tests.support.ingesting import SCHEMA, Producer, served

COLUMNS = columns.parse("n long, word string, at timestamp, price decimal(10,2), day date, raw binary, ok boolean")


def append(writer: SpoolWriter, first: int, last: int) -> None:
    numbers = pa.array(range(first, last), pa.int64())
    others = [pa.nulls(len(numbers), field.type) for field in list(writer.schema)[1:]]
    writer.append(pa.Table.from_arrays([numbers, *others], schema=writer.schema), {})


def run(place: Path, checkpoint: str = "first", savepoint: str | None = None) -> ms.Job:
    flow = ms.Flow("spooled")
    source = flow.source("records", ms.sources.spool(place / "spool", max_rows_per_epoch=40, keep=0))
    source.sink("out", ms.sinks.files(str(place / checkpoint / "out")))
    options = {"trigger": ms.available_now(), "cache": place / "cache", "on_drift": "apply", "savepoint": savepoint}
    job = flow.start(place / checkpoint / "job", **options)
    job.await_termination()
    return job


def written(spark: SparkSession, place: Path, checkpoint: str = "first") -> list[tuple[int, int]]:
    out = spark.read.parquet(str(place / checkpoint / "out"))
    return sorted((row.epoch, row.n) for row in out.select("epoch", "n").collect())


def test_a_job_reads_each_record_once_and_a_restart_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_writer, "MERGE", 4)
    writer = SpoolWriter(tmp_path / "spool", COLUMNS)
    append(writer, 0, 70)
    run(tmp_path)
    assert written(spark, tmp_path) == [(n // 40, n) for n in range(70)]
    for first in range(70, 100, 5):
        append(writer, first, first + 5)
    assert len(segments.listing(str(tmp_path / "spool"))) < 7, "merged"
    job = run(tmp_path)
    assert [n for _, n in written(spark, tmp_path)] == list(range(100))
    assert writer.release() > 0, "what the job has committed can be freed"
    savepoint = job.savepoint(tmp_path / "savepoint")
    append(writer, 100, 120)
    run(tmp_path, "moved", savepoint)
    assert [n for _, n in written(spark, tmp_path, "moved")] == list(range(100, 120))
    writer.close()


def test_what_is_no_spool_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ms.PlanError, match=r"is not a spool.*midstream ingest --to"):
        ms.sources.spool(tmp_path)
    SpoolWriter(tmp_path / "spool", COLUMNS).close()
    with pytest.raises(ms.PlanError, match="max_rows_per_epoch"):
        ms.sources.spool(tmp_path / "spool", max_rows_per_epoch=0)
    with pytest.raises(ms.PlanError, match="reader name"):
        ms.sources.spool(tmp_path / "spool", reader="../job")
    frame = ms.sources.spool(tmp_path / "spool")
    assert frame.isStreaming
    assert frame.schema.simpleString() == (
        "struct<n:bigint,word:string,at:timestamp,price:decimal(10,2),day:date,raw:binary,ok:boolean>"
    )


@pytest.mark.slow
def test_a_live_job_gets_each_record_once_from_a_server_that_is_killed_again_and_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    total, kills = 100_000, 5
    with served(tmp_path / "spool", *SCHEMA) as server:
        producer = Producer(server, "p", total)
        producer.start()
        flow = ms.Flow("live")
        out = str(tmp_path / "out")
        flow.source("records", ms.sources.spool(server.spool)).sink("out", ms.sinks.files(out))
        for kill in range(kills):  # the job is stopped and started again, too, and the producer notices nothing
            with flow.start(tmp_path / "job", trigger=ms.every(0), cache=tmp_path / "cache"):
                producer.wait_for((kill + 1) * total // (kills + 1))
                server.end(signal.SIGKILL)
                server.start()
        producer.finish()
    flow.start(tmp_path / "job", trigger=ms.available_now(), cache=tmp_path / "cache").await_termination()
    assert sorted(row.n for row in spark.read.parquet(out).select("n").collect()) == list(range(total))
