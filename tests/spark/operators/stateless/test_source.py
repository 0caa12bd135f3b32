"""A source in a plan: the rows of a batch that are its own, as a frame and as a text."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from midstream.epoch.dataflow import Dataflow
from midstream.errors import PlanError
from midstream.operators.kind import Resolving
from midstream.operators.resolve import worked_out
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.source import SourceKind
from midstream.plan import plan as p
from midstream.sources.union import tagged_union

ONE, TWO = p.Source(id="one", schema="n long, `a b` string"), p.Source(id="two", schema="n long")
PLAN = p.Plan(name="flow", operators=(ONE, TWO))


def test_the_schema_is_that_which_was_found_when_it_was_given(spark: SparkSession) -> None:
    output = SourceKind().resolve(ONE, Resolving(spark, Resolved(PLAN, {}, {}, {}), ()))
    assert (output.schema.simpleString(), output.event_time) == ("struct<n:bigint,a b:string>", None)
    with pytest.raises(PlanError, match=r"source 's': 'n \?' is not a schema"):
        SourceKind().resolve(p.Source(id="s", schema="n ?"), Resolving(spark, Resolved(PLAN, {}, {}, {}), ()))


@pytest.mark.parametrize("rows", [[(1, "x"), (None, None)], []])
def test_its_rows_are_the_same_as_a_frame_and_as_a_text(spark: SparkSession, rows: list[tuple[int, str]]) -> None:
    one = spark.createDataFrame(rows, "n long, `a b` string")
    two = spark.createDataFrame([(7,)], "n long")
    flow = Dataflow(worked_out(spark, PLAN), tagged_union([(0, one), (1, two)]), 0, "run", {}, {"one": 0, "two": 1})
    frame = SourceKind().frame(ONE, flow)
    text = flow.spark.sql(SourceKind().query(ONE, flow))
    for found in (frame, text):
        assert found.columns == ["n", "a b"]
        assert sorted(map(tuple, found.collect()), key=repr) == sorted(rows, key=repr)
