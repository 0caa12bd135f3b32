"""The rows of several streams of one schema."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from midstream.errors import PlanError
from midstream.operators.kind import Output, Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.union import UnionKind
from midstream.plan import plan as p
from tests.support.spark_sql import run
from tests.support.tables import Tables

UNION = p.Union(id="u", inputs=("one", "two"))
PLAN = p.Plan(name="flow", operators=(p.Source(id="one", schema=""), p.Source(id="two", schema=""), UNION))


def schema(nullable: bool = True, **columns: DataType) -> StructType:
    return StructType([StructField(name, type, nullable) for name, type in columns.items()])


def resolved(one: StructType, two: StructType, times: tuple[str | None, str | None] = (None, None)) -> Output:
    known = Resolved(PLAN, {}, dict(zip(UNION.inputs, times, strict=True)), {})
    return UnionKind().resolve(UNION, Resolving(None, known, (one, two)))  # type: ignore[arg-type]


def test_columns_that_one_stream_requires_the_union_does_not():
    same = {"n": LongType(), "x": StringType()}
    assert resolved(schema(False, **same), schema(True, **same)).schema == schema(True, **same)


@pytest.mark.parametrize(
    ("times", "expected"), [(("ts", "ts"), "ts"), (("ts", "at"), None), (("ts", None), None), ((None, None), None)]
)
def test_the_event_time_is_that_of_all_streams(times: tuple[str | None, str | None], expected: str | None):
    assert resolved(schema(n=LongType()), schema(n=LongType()), times).event_time == expected


@pytest.mark.parametrize(
    "other",
    [
        schema(n=LongType(), x=DoubleType()),
        schema(x=StringType(), n=LongType()),
        schema(n=LongType()),
        schema(n=LongType(), X=StringType()),
        schema(n=LongType(), x=StringType(), y=StringType()),
    ],
    ids=["type", "order", "fewer", "name", "more"],
)
def test_streams_of_other_columns_are_refused_with_both_schemas(other: StructType):
    one = schema(n=LongType(), x=StringType())
    complaint = (
        f"union 'u': 'one' has struct<n:bigint,x:string>, 'two' has {other.simpleString()}; give both the same "
        "columns with a transform"
    )
    with pytest.raises(PlanError, match=re.escape(complaint)):
        resolved(one, other)


def test_all_rows_come_out_and_equal_ones_as_often_as_they_came():
    query = UnionKind().query(UNION, Tables(Resolved(PLAN, {}, {}, {})))
    found = run(query, one=pa.table({"n": [1, 2]}), two=pa.table({"n": [2, None]}))
    assert [row["n"] for row in found] == [1, 2, 2, None]
