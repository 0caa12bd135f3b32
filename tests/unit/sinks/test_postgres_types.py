"""The PostgreSQL type of each type of Spark. How values get there is tested with a server, in tests/contract/sinks."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from midstream.sinks.postgres_types import postgres_type

STRUCT = T.StructType().add("a", "long")


class Point(T.UserDefinedType):
    """A type of a user's own, which is stored as two numbers."""

    @classmethod
    def sqlType(cls) -> T.DataType:  # noqa: N802 (Spark's name)
        return T.ArrayType(T.DoubleType())


@pytest.mark.parametrize(
    ("spark", "postgres"),
    [
        (T.NullType(), "text"),
        (T.BooleanType(), "boolean"),
        (T.ByteType(), "smallint"),
        (T.ShortType(), "smallint"),
        (T.IntegerType(), "integer"),
        (T.LongType(), "bigint"),
        (T.FloatType(), "real"),
        (T.DoubleType(), "double precision"),
        (T.DecimalType(10, 2), "numeric(10,2)"),
        (T.DecimalType(38, 0), "numeric(38,0)"),
        (T.StringType(), "text"),
        (T.VarcharType(3), "text"),
        (T.CharType(3), "text"),
        (T.BinaryType(), "bytea"),
        (T.DateType(), "date"),
        (T.TimestampType(), "timestamp with time zone"),
        (T.TimestampNTZType(), "timestamp without time zone"),
        (T.TimeType(), "time without time zone"),
        (T.DayTimeIntervalType(), "interval"),
        (T.YearMonthIntervalType(), "interval"),
        (T.ArrayType(T.LongType()), "bigint[]"),
        (T.ArrayType(T.DecimalType(5, 1)), "numeric(5,1)[]"),
        (T.ArrayType(T.TimestampType()), "timestamp with time zone[]"),
        (T.ArrayType(T.ArrayType(T.LongType())), "jsonb"),
        (T.ArrayType(STRUCT), "jsonb"),
        (T.ArrayType(T.MapType(T.StringType(), T.LongType())), "jsonb"),
        (STRUCT, "jsonb"),
        (T.MapType(T.StringType(), T.LongType()), "jsonb"),
        (T.VariantType(), "jsonb"),
        (Point(), "double precision[]"),
        (T.ArrayType(Point()), "jsonb"),
    ],
    ids=lambda type: str(type),
)
def test_a_type_of_spark_has_a_counterpart_in_postgresql(spark: T.DataType, postgres: str):
    assert postgres_type(spark) == postgres
