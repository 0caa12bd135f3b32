"""A transform is tried on no rows: what comes out of it, and what would silently become per epoch."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.stateless.transform import transformed
from midstream.spark.forbidden_nodes import INSTEAD

ROWS = StructType([StructField("k", LongType()), StructField("v", StringType())])


def tried(spark: SparkSession, function: Any, *, per_epoch: bool = False) -> str:
    return transformed(spark, builders.transform(function, per_epoch=per_epoch, id="t"), ROWS).simpleString()


def test_the_schema_is_that_of_what_comes_out(spark: SparkSession) -> None:
    assert tried(spark, lambda df: df.where("k > 1").selectExpr("k + 1 as n", "v")) == "struct<n:bigint,v:string>"
    assert tried(spark, lambda df: df.selectExpr("explode(array(k, k)) as k")) == "struct<k:bigint>"


def test_a_table_may_be_aggregated_and_joined(spark: SparkSession) -> None:
    names = spark.createDataFrame([(1, "a"), (1, "b")], "k long, name string").groupBy("k").count()
    assert tried(spark, lambda df: df.join(names, "k")) == "struct<k:bigint,v:string,count:bigint>"


@pytest.mark.parametrize(
    ("function", "node"),
    [
        (lambda df: df.groupBy("k").count(), "Aggregate"),
        (lambda df: df.select("v").distinct(), "Deduplicate"),
        (lambda df: df.orderBy("k").select("k"), "Sort"),
        (lambda df: df.offset(3), "Offset"),
        (lambda df: df.selectExpr("k", "sum(k) over (partition by v) as s"), "Window"),
        (lambda df: df.groupBy("k").count().join(df, "k"), "Aggregate"),
        (lambda df: df.join(df.groupBy("k").count(), "k"), "Aggregate"),
        (lambda df: df.join(df.select("k").distinct(), "k"), "Deduplicate"),
        (lambda df: df.select("k").union(df.groupBy("k").count().select("k")), "Aggregate"),
        (lambda df: df.alias("a").join(df.alias("b").limit(1), "k"), "Limit"),
    ],
    ids=["aggregate", "distinct", "sort", "offset", "window", "left", "right", "distinct right", "united", "aliased"],
)
def test_what_would_see_one_epoch_at_a_time_is_refused_unless_that_is_said(
    spark: SparkSession, function: Any, node: str
) -> None:
    with pytest.raises(
        PlanError, match=rf"transform 't' holds \w*{node}\w*, which would see one epoch's rows"
    ) as refused:
        tried(spark, function)
    assert any(advice in str(refused.value) for advice in INSTEAD.values())
    assert tried(spark, function, per_epoch=True).startswith("struct<")


def test_a_function_that_fails_on_the_columns_is_refused_with_them(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match=r"transform 't' fails on a stream of struct<k:bigint,v:string>: .*nowhere"):
        tried(spark, lambda df: df.select("nowhere"))


@pytest.mark.parametrize("made", [None, 3, "rows"])
def test_what_gives_no_dataframe_is_refused(spark: SparkSession, made: Any) -> None:
    with pytest.raises(PlanError, match=f"transform 't' must return a DataFrame, but returned {type(made).__name__}"):
        tried(spark, lambda df: made)


def test_an_error_of_the_users_own_is_raised(spark: SparkSession) -> None:
    with pytest.raises(KeyError, match="mine"):
        tried(spark, lambda df: {}["mine"])
