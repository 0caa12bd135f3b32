"""The event-time column of a stream: what can be one, and where it is looked at."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DateType, LongType, StringType, StructField, StructType
from pyspark.sql.types import TimestampNTZType as Local
from pyspark.sql.types import TimestampType as Moment

from midstream.errors import PlanError
from midstream.operators.kind import Output, Resolving
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.stateless.watermark import WatermarkKind
from midstream.plan import plan as p
from tests.support.tables import Tables

MARK = p.Watermark(id="w", inputs=("s",), column="ts", delay=3)
PLAN = p.Plan(name="flow", operators=(p.Source(id="s", schema=""), MARK))


def resolved(column: str, type: DataType) -> Output:
    schema = StructType([StructField("n", LongType()), StructField(column, type)])
    rows = Resolving(None, Resolved(PLAN, {}, {"s": None}, {}), (schema,))  # type: ignore[arg-type]
    return WatermarkKind().resolve(MARK, rows)


def test_rows_stay_as_they_are_and_have_an_event_time():
    output = resolved("ts", Moment())
    assert (output.schema.names, output.event_time, output.keyed) == (["n", "ts"], "ts", None)


@pytest.mark.parametrize("type", [LongType(), StringType(), DateType(), Local()], ids=DataType.simpleString)
def test_what_is_no_moment_is_refused(type: DataType):
    complaint = f"with_watermark 'w': column 'ts' is {type.simpleString()}; it must be a timestamp"
    with pytest.raises(PlanError, match=complaint):
        resolved("ts", type)


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(PlanError, match="with_watermark 'w': there is no column 'ts'; the stream has n, at"):
        resolved("at", Moment())


def frames(*asked: str) -> Tables:
    """A run in which some watermarks are asked for by a keyed operator."""
    keyed = Keyed(StructType(), StructType(), None, asked, pa.schema([]))
    return Tables(Resolved(PLAN, {}, {}, {"sums": keyed}))


def test_where_nobody_asks_for_it_rows_pass_as_a_text_and_nothing_is_observed():
    assert WatermarkKind().query(MARK, frames()) == WatermarkKind().query(MARK, frames("other")) == "select * from s"
    assert WatermarkKind().query(MARK, frames("other", "w")) is None, "a frame is observed"
