"""Which columns can be keys, which names are taken, and what a stored layout says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from midstream.errors import PlanError
from midstream.operators.keyed import checked_keys, layout_of, watermarks_above
from midstream.operators.kind import Resolving
from midstream.operators.resolved import Resolved
from midstream.plan import plan as p

LONG = LongType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, type) for name, type in columns.items()])


def checked(input: StructType, *keys: str, told: StructType | None = None) -> StructType:
    operator = p.Aggregate(id="sums", inputs=("s",), keys=keys, aggregates=())
    rows: Any = Resolving(None, Resolved(p.Plan(name="flow", operators=()), {}, {}, {}), (input,))  # type: ignore[arg-type]
    return checked_keys(operator, rows, keys, told)


@pytest.mark.parametrize(
    "type",
    [LONG, StringType(), DoubleType(), BooleanType(), BinaryType(), DateType(), TimestampType(), DecimalType(9, 2)],
    ids=DataType.simpleString,
)
def test_whatever_can_be_compared_can_be_a_key(type: DataType):
    assert checked(schema(n=LONG, k=type), "k") == schema(k=type)


def test_keys_come_in_the_order_in_which_they_are_named():
    assert checked(schema(a=LONG, b=LONG, c=LONG), "c", "a").names == ["c", "a"]
    assert checked(schema(a=LONG)).names == []


@pytest.mark.parametrize(
    ("type", "complaint"),
    [
        (MapType(LONG, LONG), "operator 'sums': column 'k' holds a map and cannot be a key"),
        (ArrayType(MapType(LONG, LONG)), "operator 'sums': column 'k' holds a map and cannot be a key"),
        (ArrayType(LONG), "column 'k' is array<bigint> and cannot be a key; key by its parts, or by to_json of it"),
        (schema(a=LONG), "column 'k' is struct<a:bigint> and cannot be a key"),
    ],
)
def test_what_holds_others_cannot_be_a_key(type: DataType, complaint: str):
    with pytest.raises(PlanError, match=re.escape(complaint)):
        checked(schema(k=type), "k")


def test_a_key_that_is_not_there_is_refused_with_what_there_is():
    with pytest.raises(PlanError, match="key_by of 'sums': there is no column 'c'; the stream has a, b"):
        checked(schema(a=LONG, b=LONG), "a", "c")


@pytest.mark.parametrize(
    "name", ["_slot", "_GROUP", "_order", "_tie", "_rows", "_epoch", "_broadcast", "_pane", "_start"]
)
def test_names_of_our_own_columns_are_taken_also_in_what_groups_are_told(name: str):
    with pytest.raises(PlanError, match=f"operator 'sums': the column name '{name}' is taken by Midstream; rename it"):
        checked(schema(k=LONG, **{name: LONG}), "k")
    with pytest.raises(PlanError, match="is taken by Midstream"):
        checked(schema(k=LONG), "k", told=schema(**{name: LONG}))


def test_the_watermarks_above_are_those_that_rows_have_passed():
    source, other = p.Source(id="s", schema=""), p.Source(id="t", schema="")
    first = p.Watermark(id="w1", inputs=("s",), column="ts", delay=0)
    second = p.Watermark(id="w2", inputs=("t",), column="ts", delay=0)
    beside = p.Watermark(id="w3", inputs=("s",), column="ts", delay=0)
    union = p.Union(id="u", inputs=("w1", "w2"))
    sums = p.Aggregate(id="sums", inputs=("u",), keys=(), aggregates=())
    plan = p.Plan(name="flow", operators=(source, other, first, second, beside, union, sums))
    assert sorted(watermarks_above(sums, plan)) == ["w1", "w2"]
    told = p.Aggregate(id="told", inputs=("s", "w3"), keys=(), aggregates=())
    assert watermarks_above(told, plan) == (), "what groups are told has no say"


def test_a_layout_has_the_types_of_keys_and_what_is_kept():
    keys = schema(user=StringType(), n=LONG)
    assert layout_of(keys, ["value total  bigint", "map seen string int"]) == (
        "by (user string, n bigint): value total bigint, map seen string int"
    )
    assert layout_of(schema(), ["count <i8"], "in panes ") == "in panes by (): count <i8"
