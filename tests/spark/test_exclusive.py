"""A file that nobody else has created: of two drivers one succeeds, on any store that Spark reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.checkpoint.exclusive import Exclusive
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError


def test_of_two_drivers_that_create_a_file_one_succeeds(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "checkpoint"))
    one, other = Exclusive(spark, storage), Exclusive(spark, storage)
    one.create("commits/000000000007.json", b"\x00of one\xff")
    with pytest.raises(CheckpointError, match=r"another driver has written .*/commits/000000000007\.json: .* in use"):
        other.create("commits/000000000007.json", b"of the other")
    assert storage.read("commits/000000000007.json") == b"\x00of one\xff"


def test_a_file_that_was_written_and_whose_answer_was_lost_may_be_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage = Storage(str(tmp_path / "checkpoint"))
    for _ in range(2):
        Exclusive(spark, storage).create("midstream.json", b"the same")
    assert storage.read("midstream.json") == b"the same"


def test_a_store_that_cannot_be_written_is_said_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "commits").write_text("a file where a directory should be")
    exclusive = Exclusive(spark, Storage(str(tmp_path / "checkpoint")))
    with pytest.raises(CheckpointError, match=r"commits/1\.json could not be written: .*Start the job again"):
        exclusive.create("commits/1.json", b"content")


def test_a_store_that_spark_does_not_know_is_refused_at_the_start(spark: SparkSession) -> None:
    with pytest.raises(CheckpointError, match=r"Spark cannot reach the checkpoint nowhere://host/job: .*connector"):
        Exclusive(spark, Storage("nowhere://host/job"))
