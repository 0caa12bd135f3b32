"""Types as text: as Spark writes them, but that names which need it are quoted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from midstream.spark.types import ddl, struct

ATOMS = st.sampled_from(
    [
        T.LongType(), T.IntegerType(), T.ShortType(), T.ByteType(), T.DoubleType(), T.FloatType(), T.StringType(),
        T.BinaryType(), T.BooleanType(), T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.DecimalType(38, 18),
    ]
)  # fmt: skip
PLAIN_NAMES = st.sampled_from(["a", "_b", "c9", "CamelCase"])


def nested(below: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.DataType]:
    fields = st.lists(st.builds(T.StructField, PLAIN_NAMES, below, st.booleans()), max_size=3)
    return st.builds(T.ArrayType, below) | st.builds(T.MapType, below, below) | st.builds(T.StructType, fields)


@given(st.recursive(ATOMS, nested, max_leaves=6))
def test_a_type_with_plain_names_is_written_as_spark_writes_it(type: T.DataType) -> None:
    assert ddl(type) == type.simpleString()


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("plain", "plain"),
        ("a b", "`a b`"),
        ("a.b", "`a.b`"),
        ("a,b:c>", "`a,b:c>`"),
        ("9", "`9`"),
        ("größe", "`größe`"),
        ("it`s", "`it``s`"),
        ("", "``"),
    ],
)
def test_a_name_that_needs_it_is_quoted_at_every_depth(name: str, quoted: str) -> None:
    flat = T.StructType([T.StructField(name, T.LongType(), nullable=False)])
    assert ddl(flat) == struct([(name, "bigint")]) == f"struct<{quoted}:bigint>"
    deep = T.StructType([T.StructField("x", T.MapType(T.StringType(), T.ArrayType(flat)))])
    assert ddl(deep) == f"struct<x:map<string,array<struct<{quoted}:bigint>>>>"


def test_a_struct_may_be_empty() -> None:
    assert ddl(T.StructType()) == struct([]) == "struct<>"
