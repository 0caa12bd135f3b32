"""How Spark writes its own logs of a query: with few processes for each file, and nothing of it stays set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream import testing
from midstream.nexmark import generator
from midstream.spark.session import FILE_MANAGER, PLAIN_FILES

SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.fixture
def as_it_comes(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session in which nobody has chosen how these files are written."""
    before = spark.conf.get(FILE_MANAGER)
    spark.conf.unset(FILE_MANAGER)
    yield spark
    spark.conf.set(FILE_MANAGER, before)


def said(df: DataFrame) -> DataFrame:
    """Say, in each row, what the session of an epoch's rows has chosen."""
    return df.selectExpr(f"'{df.sparkSession.conf.get(FILE_MANAGER, None)}' as manager")


def manager_of_a_query(spark: SparkSession) -> str:
    """Run a job, and give what the session of its query has chosen."""

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.transform("said", said).sink("out", ms.sinks.memory())

    (row,) = testing.run(spark, build, rows=testing.batches("n long", [(1,)])).rows("out")
    return str(row.manager)


def test_a_query_writes_its_logs_plainly_and_leaves_the_session_as_it_was(as_it_comes: SparkSession) -> None:
    assert manager_of_a_query(as_it_comes) == PLAIN_FILES
    assert as_it_comes.conf.get(FILE_MANAGER, None) is None


def test_a_manager_that_the_user_has_chosen_stays(as_it_comes: SparkSession) -> None:
    as_it_comes.conf.set(FILE_MANAGER, SPARKS_OWN)
    assert manager_of_a_query(as_it_comes) == SPARKS_OWN
    assert as_it_comes.conf.get(FILE_MANAGER) == SPARKS_OWN


def test_what_a_source_of_files_has_written_down_goes_with_the_offsets(spark: SparkSession, tmp_path: Path) -> None:
    few = {"spark.sql.streaming.minBatchesToRetain": "2", "spark.sql.streaming.fileSource.log.compactInterval": "3"}
    for name, value in few.items():
        spark.conf.set(name, value)
    try:
        flow = ms.Flow("files")
        flow.source("ids", generator.bounded(spark, tmp_path / "slices", 12, 1)).sink("out", ms.sinks.noop())
        flow.start(tmp_path / "job", trigger=ms.available_now()).await_termination()
    finally:
        for name in few:
            spark.conf.unset(name)
    kept = {path.name for path in (tmp_path / "job/spark/sources/0").iterdir() if not path.name.startswith(".")}
    assert kept == {"8.compact", "9", "10", "11.compact"}
