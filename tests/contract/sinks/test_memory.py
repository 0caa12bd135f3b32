"""What the sink in memory promises beyond the contract that all sinks share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import cloudpickle
from pyspark.sql import Row, SparkSession

from midstream import sinks

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


def test_rows_are_what_collect_gives(start: Start, spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT 1 AS id, timestamp'2024-05-01 12:00:00Z' AS at, array(1, null) AS list, X'00' AS raw, "
        "map('a', 1.5D) AS map, named_struct('x', 1, 'y', array('z')) AS struct, interval '1' day AS span"
    )
    sink = sinks.memory()
    engine = start(sink)
    engine.publish(sink.stage(df, engine.staging(3)))
    assert sink.rows() == sink.rows(epoch=3) == df.collect()
    assert isinstance(sink.rows()[0].struct, Row)
    assert sink.epochs() == [3]
    assert sink.rows(epoch=4) == []


def test_epochs_of_several_schemas_are_one_table(start: Start) -> None:
    sink = sinks.memory()
    engine = start(sink)
    engine.publish(engine.stage(0, [(1,)], "a long"))
    engine.publish(engine.stage(1, [(2, "x")], "a long, b string"))
    assert sink.table().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_another_job_finds_it_empty_and_the_same_job_what_it_left(start: Start) -> None:
    sink = sinks.memory(f"shared {uuid.uuid4().hex}")
    engine = start(sink)
    engine.publish(engine.stage(0, [(1, "a")]))
    assert sinks.memory(sink._name).rows() == [Row(id=1, text="a")]
    start(sinks.memory(sink._name), job=engine.job)
    assert sink.epochs() == [0]
    start(sinks.memory(sink._name))
    assert sink.epochs() == []


def test_rows_are_not_pickled(start: Start) -> None:
    engine = start(sinks.memory())
    before = len(cloudpickle.dumps(engine.sink))
    engine.publish(engine.stage(0, [(1, "a needle")]))
    pickled = cloudpickle.dumps(engine.sink)
    assert len(pickled) == before
    assert b"needle" not in pickled
