"""What a keyed operator is known by: the layout of its state, and what its groups are worked out from."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, FloatType, LongType, StringType, StructField, StructType

from midstream.errors import PlanError
from midstream.operators.resolved import Keyed, ResolutionError, check_layout, hashed
from midstream.plan import plan as p
from tests.support.spark_sql import column

INPUT = StructType(
    [
        StructField("user", StringType()),
        StructField("a`b", LongType()),
        StructField("f", FloatType()),
        StructField("d", DoubleType()),
    ]
)


def keyed(layout: str = "by (user string): total <i8", base: int = 0) -> Keyed:
    return Keyed(INPUT, INPUT, None, (), pa.schema([]), layout=layout, base=base)


def aggregate(*keys: str, partition_by: str = "") -> p.Aggregate:
    return p.Aggregate(id="sums", inputs=("s",), keys=keys, partition_by=partition_by, aggregates=())


def test_state_of_the_same_layout_and_of_none_is_read():
    check_layout("sums", {0: keyed().layout}, keyed())
    check_layout("sums", {}, keyed())
    check_layout("sums", {0: ""}, keyed())
    check_layout("sums", {0: "of an older form"}, keyed(base=3))


def test_state_of_another_layout_is_refused_with_both_of_them():
    with pytest.raises(PlanError) as refused:
        check_layout("sums", {0: "by (user int): n <i8", 3: "another"}, keyed())
    assert str(refused.value) == (
        "the state of operator 'sums' is stored by (user int): n <i8; the flow now needs it by (user string): total "
        "<i8. Keep the types of its columns, give the operator another id, or start with a new checkpoint"
    )


def test_a_group_follows_from_the_key_or_from_what_it_is_partitioned_by():
    assert hashed(aggregate("user", "a`b"), keyed()) == "`user`, `a``b`"
    assert hashed(aggregate("user", partition_by="left(user, 1)"), keyed()) == "left(user, 1)"
    assert hashed(aggregate(), keyed()) == "0", "all rows are of one group"


@pytest.mark.parametrize("name", ["f", "d"])
def test_minus_zero_is_the_key_that_zero_is(name: str):
    signs = column(
        f"cast({hashed(aggregate(name), keyed())} as varchar)", **{name: pa.array([-0.0, 0.0, 1.5, None], pa.float64())}
    )
    assert signs == ["0.0", "0.0", "1.5", None]


def test_what_does_not_fit_says_where_and_over_which_columns():
    error = ResolutionError("there is no column 'x'", "sums", {"s": INPUT})
    assert isinstance(error, PlanError)
    assert (str(error), error.operator, error.inputs) == ("there is no column 'x'", "sums", {"s": INPUT})
