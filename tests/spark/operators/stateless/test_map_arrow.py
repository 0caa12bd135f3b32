"""A function over Arrow batches in a plan: its rows, and apart from them what it has failed on, counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from midstream.epoch.dataflow import SEEN, Dataflow
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.kind import FAILED_ROWS
from midstream.operators.resolve import worked_out
from midstream.operators.stateless.errors import failures
from midstream.plan import plan as p
from midstream.sources.union import tagged_union


def inverted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"inverse": [12 // n for n in batch.column("n").to_pylist()]})


def plan(schema: str, **given: Any) -> p.Plan:
    made = builders.map_arrow(inverted, schema=schema, id="m", **given)
    return p.Plan(name="flow", operators=(p.Source(id="s", schema="n long"), builders.reading(made, "s")))


def dataflow(spark: SparkSession, made: p.Plan, *numbers: int) -> Dataflow:
    batch = tagged_union([(0, spark.createDataFrame([(n,) for n in numbers], "n long"))])
    return Dataflow(worked_out(spark, made), batch, 0, "run", {}, {"s": 0})


def test_rows_come_out_in_the_declared_schema(spark: SparkSession) -> None:
    flow = dataflow(spark, plan("inverse int"), 1, 2, 5)
    frame = flow.frame("m")
    assert frame.schema.simpleString() == "struct<inverse:int>"
    assert sorted(row.inverse for row in frame.collect()) == [2, 6, 12]
    assert flow.observations == {}


def test_rows_that_fail_are_apart_and_counted(spark: SparkSession) -> None:
    made = plan("inverse int", on_error="dead_letter")
    flow = dataflow(spark, made, 1, 0, 3)
    assert sorted(row.inverse for row in flow.frame("m").collect()) == [4, 12]
    (failed,) = failures("m", flow).collect()
    assert (failed.operator, failed.row, failed.key) == ("m", '{"n":0}', None)
    assert failed.reason.startswith("ZeroDivisionError")
    assert flow.observed(FAILED_ROWS)["m"].get == {SEEN: 1}
    flow.close()


def test_a_column_for_failures_is_taken_where_there_may_be_some(spark: SparkSession) -> None:
    worked_out(spark, plan("_Failed int"))
    with pytest.raises(PlanError, match="operator 'm': the column name '_Failed' is taken by Midstream"):
        worked_out(spark, plan("_Failed int", on_error="dead_letter"))
