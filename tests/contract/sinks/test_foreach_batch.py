"""What a function of the user as a sink promises beyond the contract that all sinks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from midstream import sinks
from midstream.errors import SinkError
from midstream.plan import code

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_the_function_sees_the_same_rows_each_time_and_no_empty_epoch(start: Start) -> None:
    calls: list[tuple[int, list[Row]]] = []
    engine = start(sinks.foreach_batch(lambda df, epoch: calls.append((epoch, sorted(df.collect())))))
    engine.directory = engine.directory / "a [b] {c} *d?"  # Spark takes paths for patterns
    engine.publish(engine.stage(0, []))
    staged = engine.sink.stage(engine.frame([(1, "a"), (2, "b")]).withColumn("r", F.rand()), engine.staging(1))
    engine.publish(staged)
    engine.publish(staged)
    assert [epoch for epoch, _ in calls] == [1, 1]
    assert len(calls[0][1]) == 2
    assert calls[0] == calls[1]


def test_another_process_can_load_the_function(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(df: DataFrame, epoch: int) -> None:
        raise ValueError(f"no epoch {epoch} please")

    engine = start(sinks.foreach_batch(fail))
    monkeypatch.setattr(code, "_live", {})
    engine.crash()
    staged = engine.stage(5, [(1, "a")])
    with pytest.raises(SinkError, match=r"fail failed on epoch 5: ValueError: no epoch 5 please.*called with it again"):
        engine.publish(staged)


def test_it_is_described_by_its_code() -> None:
    one, two, three = (sinks.foreach_batch(lambda df, epoch, n=n: n) for n in (1, 1, 2))
    assert one.describe() == two.describe() != three.describe()


def test_it_takes_types_that_only_spark_reads(start: Start, spark: SparkSession) -> None:
    seen: list[Row] = []
    engine = start(sinks.foreach_batch(lambda df, epoch: seen.extend(df.selectExpr("v:a::int AS a").collect())))
    df = spark.sql("""SELECT parse_json('{"a": 1}') AS v""")
    engine.publish(engine.sink.stage(df, engine.staging(0)))
    assert seen == [Row(a=1)]
    engine = start(sinks.memory())
    with pytest.raises(SinkError, match=r"cannot take column 'v': its type holds variant. Cast it"):
        engine.sink.stage(df, engine.staging(0))
