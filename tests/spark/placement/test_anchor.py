"""The anchor: a cached table with one row for each seat, on the executors that there are; here there is one."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from midstream.operators.task import SLOT
from midstream.placement.anchor import anchored
from midstream.plan.routing import tokens


@pytest.mark.parametrize("seats", [1, 2, 5])
def test_every_seat_has_one_row_in_a_partition_of_its_own(spark: SparkSession, seats: int) -> None:
    anchor = anchored(spark, seats, {"driver"})
    try:
        found = anchor.frame.selectExpr(SLOT, "spark_partition_id() as partition").collect()
        assert {row.partition: row[SLOT] for row in found} == dict(enumerate(tokens(seats)))
        assert len(anchor.where) == seats
        assert len(set(anchor.where)) == 1
        assert anchor.frame.is_cached
        assert spark.sql(f"select count(*) as n from {anchor.view}").collect()[0].n == seats
    finally:
        anchor.drop()


def test_what_is_dropped_is_gone_and_others_stay(spark: SparkSession) -> None:
    one, other = anchored(spark, 2, {"driver"}), anchored(spark, 2, {"driver"})
    assert one.view != other.view
    one.drop()
    assert not one.frame.is_cached
    assert other.frame.is_cached, "of as many seats, and not the same"
    with pytest.raises(AnalysisException):
        spark.sql(f"select * from {one.view}").collect()
    assert spark.sql(f"select * from {other.view}").count() == 2
    other.drop()
