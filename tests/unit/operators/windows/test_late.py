"""Late rows as a stream: which columns they have, and where they come from; which rows are late is in `test_sql.py`."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from midstream.errors import PlanError
from midstream.operators.kind import Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.windows.late import LateKind, gives_late
from midstream.plan import plan as p

ROWS = StructType([StructField("n", LongType()), StructField("ts", TimestampType())])
WINDOWS = StructType([StructField("window_start", TimestampType()), StructField("total", LongType())])


def plan(gap: int = 0, *, read: bool = True) -> p.Plan:
    """Windows, or sessions, of which somebody reads the late rows or nobody does."""
    w = p.Watermark(id="w", inputs=("s",), column="ts", delay=0)
    size = 0 if gap else 10
    sums = p.Window(id="sums", inputs=("w",), keys=(), aggregates=(), size=size, slide=size, gap=gap)
    late = (p.Late(id="late", inputs=("sums" if gap else "w",), of="sums"),) if read else ()
    return p.Plan(name="flow", operators=(p.Source(id="s", schema=""), w, sums, *late))


def resolved(made: p.Plan, rows: StructType = ROWS) -> StructType:
    known = Resolved(made, {"w": rows, "sums": WINDOWS}, {"w": "ts", "sums": "window_start"}, {})
    late = made["late"]
    assert isinstance(late, p.Late)
    inputs = (known.schemas[late.inputs[0]],)
    return LateKind().resolve(late, Resolving(None, known, inputs)).schema  # type: ignore[arg-type]


@pytest.mark.parametrize("gap", [0, 5], ids=["windows", "sessions"])
def test_late_rows_are_those_that_came_and_the_reason(gap: int):
    assert resolved(plan(gap)) == StructType([*ROWS, StructField("late_reason", StringType())])


@pytest.mark.parametrize("gap", [0, 5], ids=["windows", "sessions"])
def test_rows_that_have_a_reason_already_are_refused(gap: int):
    with pytest.raises(PlanError, match="operator 'late': the column name 'Late_Reason' is taken by Midstream"):
        resolved(plan(gap), StructType([*ROWS, StructField("Late_Reason", StringType())]))


def test_late_rows_of_what_has_no_windows_are_refused():
    made = p.Plan(name="flow", operators=(*plan(read=False).operators, p.Late(id="late", inputs=("w",), of="others")))
    with pytest.raises(PlanError, match="'late' are the late rows of 'others', which has no windows of event time"):
        resolved(made)


def test_only_sessions_give_their_late_rows_themselves_and_only_if_somebody_reads_them():
    found = {(gap, read): gives_late(plan(gap, read=read), plan(gap)["sums"]) for gap in (0, 5) for read in (0, 1)}
    assert found == {(0, 0): False, (0, 1): False, (5, 0): False, (5, 1): True}


def test_late_rows_of_windows_are_read_from_their_input_and_those_of_sessions_are_not():
    for gap, expected in ((0, True), (5, False)):
        late = plan(gap)["late"]
        assert isinstance(late, p.Late)
        assert LateKind().reads_input(late, plan(gap)) == expected
