"""Schemas as Arrow has them; what users write Spark reads, in `tests/spark/operators/test_resolve.py`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from midstream.errors import PlanError
from midstream.operators.schemas import arrow_schema, check_punctuation, is_float, serialised, unknown_column

SCHEMA = StructType(
    [
        StructField("n", LongType(), nullable=False),
        StructField("ts", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("d", DecimalType(9, 2)),
        StructField("many", ArrayType(StructType([StructField("f", FloatType())]))),
    ]
)


def test_the_arrow_form_keeps_names_and_types_and_times_are_in_utc():
    found = arrow_schema(SCHEMA)
    assert found.names == SCHEMA.names
    assert found.field("n").type == pa.int64()
    assert not found.field("n").nullable
    assert found.field("ts").type == pa.timestamp("us", tz="UTC")
    assert found.field("local").type == pa.timestamp("us")
    assert found.field("d").type == pa.decimal128(9, 2)
    assert found.field("many").type.value_type == pa.struct([("f", pa.float32())])


@pytest.mark.parametrize("schema", [SCHEMA, StructType([])])
def test_a_schema_comes_back_from_its_bytes(schema: StructType):
    found = arrow_schema(schema)
    assert pa.ipc.read_schema(pa.py_buffer(serialised(found))) == found
    assert isinstance(serialised(found), bytes), "it is pickled into tasks"


@pytest.mark.parametrize(
    ("type", "expected"),
    [(FloatType(), True), (DoubleType(), True), (LongType(), False), (DecimalType(9, 2), False), (StringType(), False)],
)
def test_floats_are_known(type: DataType, expected: bool):
    assert is_float(StructType([StructField("a", IntegerType()), StructField("x", type)]), "x") == expected


def test_a_column_that_is_not_there_is_named_beside_those_that_are():
    error = unknown_column("with_watermark 'w'", "tz", SCHEMA)
    assert isinstance(error, PlanError)
    assert str(error) == "with_watermark 'w': there is no column 'tz'; the stream has n, ts, local, d, many"


def test_no_punctuation_needs_no_session():
    check_punctuation(None, "with_watermark 'w'", "", SCHEMA)  # type: ignore[arg-type]
