"""The judge of benchmarks: every difference is found, and the first ones are shown."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from midstream.bench.oracle import ResultError, check, check_whole
from midstream.bench.rows import Rows, sums

Row = tuple[int | None, int, int]


def table(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), "key long, n long, total long")


def test_equal_tables_pass_in_any_order_and_of_any_whole_numbers(spark: SparkSession) -> None:
    expected = table(spark, (1, 2, 30), (2, 1, 5), (None, 1, 1))
    check("ours", table(spark, (None, 1, 1), (2, 1, 5), (1, 2, 30)).selectExpr("total", "int(n) as n", "key"), expected)
    check("ours", table(spark), table(spark))


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([(1, 2, 30)], ["key 2: n=1, total=5 expected"]),
        ([(1, 2, 30), (2, 1, 5), (2, 1, 5)], ["key 2: n=1, total=5 found"]),
        ([(1, 2, 30), (2, 1, 6)], ["key 2: n=1, total=5 expected", "key 2: n=1, total=6 found"]),
        ([], ["key 1: n=2, total=30 expected", "key 2: n=1, total=5 expected"]),
    ],
    ids=["missing", "twice", "other", "nothing"],
)
def test_a_difference_is_shown_and_no_time_is_printed(spark: SparkSession, found: list[Row], shown: list[str]) -> None:
    with pytest.raises(ResultError, match="ours has a wrong result, so no time is printed") as wrong:
        check("ours", table(spark, *found), table(spark, (1, 2, 30), (2, 1, 5)))
    assert [line.strip() for line in str(wrong.value).splitlines()[1:]] == shown


def test_only_the_first_few_are_shown(spark: SparkSession) -> None:
    with pytest.raises(ResultError) as wrong:
        check("ours", table(spark, *((key, 1, 1) for key in range(20))), table(spark))
    assert len(str(wrong.value).splitlines()) == 1 + 6


def test_rows_are_counted_in_whole_units(spark: SparkSession) -> None:
    check_whole(table(spark, (1, 30, 0), (2, 10, 0)), 20, "epochs")
    with pytest.raises(ResultError, match="41 rows were counted, which is not a whole number of epochs of 20 rows"):
        check_whole(table(spark, (1, 30, 0), (2, 11, 0)), 20, "epochs")
    with pytest.raises(ResultError, match="0 rows were counted"):
        check_whole(table(spark, (1, 0, 0)), 20, "epochs")


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_the_rows_of_a_range_are_those_of_its_parts(spark: SparkSession, skew: float) -> None:
    rows = Rows(7, skew)
    parts = rows.sums(spark, 0, 400).union(rows.sums(spark, 400, 1_000))
    check("parts", parts.groupBy("key").sum("n", "total").toDF("key", "n", "total"), rows.sums(spark, 0, 1_000))
    by_hand = spark.range(1_000).selectExpr("id as value").selectExpr(f"{rows.key} as key", "1 + value % 1000 as price")
    check("by hand", sums(by_hand), rows.sums(spark, 0, 1_000))
