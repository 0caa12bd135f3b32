"""Rows that are spread over windows get the bounds; how they are spread is in `test_sql.py`."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from midstream.errors import PlanError
from midstream.operators.kind import Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.windows.spread import SpreadKind
from midstream.plan import plan as p

SPREAD = p.Spread(id="spread", inputs=("w",), of="best", size=10, slide=5)
KNOWN = Resolved(p.Plan(name="flow", operators=(SPREAD,)), {}, {"w": "ts"}, {})


def schema(*names: str) -> StructType:
    return StructType([*(StructField(name, LongType()) for name in names), StructField("ts", TimestampType())])


def test_a_row_keeps_its_columns_and_its_event_time_and_gets_the_bounds_of_a_window():
    output = SpreadKind().resolve(SPREAD, Resolving(None, KNOWN, (schema("n"),)))  # type: ignore[arg-type]
    assert [(field.name, field.dataType) for field in output.schema] == [
        ("n", LongType()),
        ("ts", TimestampType()),
        ("window_start", TimestampType()),
        ("window_end", TimestampType()),
    ]
    assert (output.event_time, output.keyed) == ("ts", None)


@pytest.mark.parametrize("name", ["window_start", "Window_End"])
def test_rows_that_have_such_bounds_already_are_refused(name: str):
    with pytest.raises(PlanError, match=f"operator 'spread': the column name '{name}' is taken by Midstream"):
        SpreadKind().resolve(SPREAD, Resolving(None, KNOWN, (schema(name),)))  # type: ignore[arg-type]
