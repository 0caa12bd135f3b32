"""Names that are Midstream's own are refused in upper and lower case alike, as Spark compares names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.operators.resolve import resolve

OWN = ("_slot", "_group", "_order", "_tie", "_rows", "_epoch", "_broadcast", "_pane", "_start", "_closes", "_whole")


def refused(spark: SparkSession, build: Callable[[ms.Stream], object], column: str, match: str) -> None:
    """A flow over rows with one more column must be refused, when it is written or when it is checked."""
    flow = ms.Flow("taken")
    rows = flow.source("rows", spark.readStream.format("rate").load())
    if column:
        rows = rows.transform("more", lambda df: df.selectExpr("*", f"1 as {column}"))
    timed = rows.with_watermark("timestamp", 0, id="timed")

    def written_and_checked() -> None:
        build(timed)
        resolve(spark, flow.plan())

    with pytest.raises(ms.PlanError, match=match):
        written_and_checked()


@pytest.mark.parametrize("name", [case for own in OWN for case in (own, own.upper())])
def test_a_column_that_midstream_adds_is_refused_in_any_case(spark: SparkSession, name: str) -> None:
    def count(rows: ms.Stream) -> None:
        rows.key_by("value").aggregate("counts", n=ms.count())

    refused(spark, count, name, f"operator 'counts': the column name '{name}' is taken by Midstream")


class Kept(ms.KeyedFunction):
    """Has state of a name that rows of a savepoint have."""

    _GROUP = ms.value("long")


CASES: dict[str, tuple[Callable[[ms.Stream], object], str, str]] = {
    "state of a function": (
        lambda rows: rows.key_by("value").process("kept", Kept(), schema="value long"),
        "",
        "the column name '_GROUP' is taken",
    ),
    "a result as a key": (
        lambda rows: rows.key_by("value").aggregate("counts", Value=ms.count()),
        "",
        "Value is a key column",
    ),
    "a result as another": (
        lambda rows: rows.key_by("value").aggregate("counts", n=ms.count(), N=ms.count()),
        "",
        "another result is called 'N' too",
    ),
    "a result as a bound": (
        lambda rows: rows.window(ms.tumbling(1)).aggregate("counts", Window_Start=ms.count()),
        "",
        "a result has the name 'Window_Start' already",
    ),
    "a result beside late rows": (
        lambda rows: rows.window(ms.session(1)).aggregate("visits", _Whole=ms.count()).late,
        "",
        "the column name '_Whole' is taken",
    ),
    "a result as the number of a window": (
        lambda rows: rows.window(ms.count_window(2)).aggregate("twos", Window=ms.count()),
        "",
        "another result has the name 'Window' already",
    ),
    "the mark of a window by count": (
        lambda rows: rows.window(ms.count_window(2)).aggregate("twos", n=ms.count()),
        "_Ends",
        "the column name '_Ends' is taken",
    ),
    "a bound of a top": (
        lambda rows: rows.window(ms.tumbling(1)).top("best", by="value"),
        "Window_End",
        "the rows have a column 'Window_End', as the windows will",
    ),
    "the rank of a top": (
        lambda rows: rows.window(ms.tumbling(1)).top("best", by="value"),
        "_Rank",
        "the column name '_Rank' is taken",
    ),
    "the reason of late rows": (
        lambda rows: rows.window(ms.tumbling(1)).aggregate("counts", n=ms.count()).late,
        "Late_Reason",
        "operator 'counts.late': the column name 'Late_Reason' is taken",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_name_that_an_operator_gives_is_refused_in_any_case(spark: SparkSession, case: str) -> None:
    build, column, match = CASES[case]
    refused(spark, build, column, match)
