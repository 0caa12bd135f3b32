"""Schemas as users write them and as Arrow has them, and SQL that must fit one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, FloatType, StructType

from midstream.errors import PlanError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse_schema(ddl: str, what: str) -> StructType:
    """Read a schema as users write it."""
    try:
        parsed = StructType.fromDDL(ddl)
    except (PySparkException, ValueError) as error:
        raise PlanError(f"{what}: {ddl!r} is not a schema ({first_line(error)}); write 'name type, ...'") from error
    if not isinstance(parsed, StructType):
        raise PlanError(f"{what}: {ddl!r} is one type, not a schema; write 'name type, name type'")
    return parsed


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a schema; timestamps are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def serialised(schema: pa.Schema) -> bytes:
    """Return the Arrow form of a schema as bytes."""
    return bytes(schema.serialize())


def check_punctuation(spark: SparkSession, what: str, punctuation: str, schema: StructType) -> None:
    """Refuse SQL that is not a condition on a row."""
    if punctuation:
        try:
            spark.createDataFrame([], schema).where(punctuation)
        except PySparkException as error:
            raise PlanError(
                f"{what}: the punctuation {punctuation!r} is not a condition on a row of {schema.simpleString()}: "
                f"{first_line(error)}"
            ) from error


def unknown_column(what: str, column: str, schema: StructType) -> PlanError:
    """Return the error of a column that is not there."""
    return PlanError(f"{what}: there is no column {column!r}; the stream has {', '.join(schema.names)}")


def is_float(schema: StructType, column: str) -> bool:
    """Tell whether a column has floating-point numbers."""
    return isinstance(schema[column].dataType, (FloatType, DoubleType))
