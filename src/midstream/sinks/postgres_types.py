"""Spark columns in the form in which PostgreSQL's COPY reads them.

All shaping is done by Spark, on the executors, when rows are staged: what the driver then sends is plain
text. What PostgreSQL could not store fails there too, before the epoch commits.
"""

from __future__ import annotations

import functools
import operator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

TYPE = "midstream.postgres"  # key of a staged column's metadata: its PostgreSQL type

_ATOMIC: dict[type[T.DataType], str] = {
    T.NullType: "text",
    T.BooleanType: "boolean",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.StringType: "text",
    T.CharType: "text",
    T.VarcharType: "text",
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp without time zone",
    T.TimeType: "time without time zone",
    T.DayTimeIntervalType: "interval",
    T.YearMonthIntervalType: "interval",
}
# Arrow's CSV writer spells the others as PostgreSQL reads them.
_AS_TEXT = (
    T.NullType,
    T.DecimalType,
    T.BinaryType,
    T.TimeType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)


def postgres_type(kind: T.DataType) -> str:
    """Return the PostgreSQL type for a Spark type: by name for atoms and arrays of them, else jsonb."""
    kind = _plain(kind)
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        element = postgres_type(kind.elementType)
        return "jsonb" if element == "jsonb" or element.endswith("[]") else f"{element}[]"
    return _ATOMIC.get(type(kind), "jsonb")


def staged_column(field: T.StructField, complaint: str, *, is_key: bool) -> Column:
    """Return the column as it is to be staged; a value that PostgreSQL cannot store raises `complaint`."""
    column = F.col(_quoted(field.name))
    target = postgres_type(field.dataType)
    staged = _staged(column, field.dataType, target)
    unfit = _unfit(column, field.dataType)
    if is_key:
        unfit = column.isNull() if unfit is None else column.isNull() | unfit
    if unfit is not None:
        staged = F.when(unfit, F.raise_error(F.lit(complaint))).otherwise(staged)
    return staged.alias(field.name, metadata={TYPE: target})


def _staged(column: Column, kind: T.DataType, target: str) -> Column:
    kind = _plain(kind)
    if target == "jsonb":
        return F.to_json(column, {"ignoreNullFields": "false"})
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        items = F.transform(column, lambda item: F.coalesce(_in_quotes(_text(item, element)), F.lit("NULL")))
        return F.concat(F.lit("{"), F.array_join(items, ","), F.lit("}"))
    return _text(column, kind) if isinstance(kind, _AS_TEXT) else column


def _text(column: Column, kind: T.DataType) -> Column:
    """Spell a value of an atomic type as PostgreSQL reads it."""
    kind = _plain(kind)
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column))
    if isinstance(kind, T.TimestampType):
        return F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXXXX")
    if isinstance(kind, T.DayTimeIntervalType):
        seconds = (F.unix_micros(F.timestamp_micros(F.lit(0)) + column)).cast("decimal(19, 0)") / F.lit(1_000_000)
        return F.concat(seconds.cast("decimal(19, 6)").cast("string"), F.lit(" seconds"))
    if isinstance(kind, T.YearMonthIntervalType):
        months = F.extract(F.lit("YEAR"), column) * 12 + F.extract(F.lit("MONTH"), column)
        return F.concat(months.cast("string"), F.lit(" months"))
    return column.cast("string")


def _in_quotes(text: Column) -> Column:
    """Quote an element of an array literal."""
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    return F.concat(F.lit('"'), escaped, F.lit('"'))


def _unfit(column: Column, kind: T.DataType) -> Column | None:
    """Find values that PostgreSQL, or CSV on the way there, cannot take; None where a type has none."""
    kind = _plain(kind)
    if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
        return column.contains("\0") | ~F.is_valid_utf8(column)
    if isinstance(kind, T.DateType):
        return (column < F.lit("0001-01-01").cast("date")) | (column > F.lit("9999-12-31").cast("date"))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        first, last = (F.lit(text).cast(kind) for text in ("0001-01-02 00:00:00", "9999-12-30 23:59:59.999999"))
        return (column < first) | (column > last)
    found: list[Column | None] = []
    if isinstance(kind, T.ArrayType):
        found = [_any_unfit(column, kind.elementType)]
    elif isinstance(kind, T.MapType):
        found = [
            _any_unfit(F.map_keys(column), kind.keyType),
            _any_unfit(F.map_values(column), kind.valueType),
        ]
    elif isinstance(kind, T.StructType):
        found = [_unfit(column.getField(field.name), field.dataType) for field in kind]
    conditions = [each for each in found if each is not None]
    return functools.reduce(operator.or_, conditions) if conditions else None


def _any_unfit(array: Column, element: T.DataType) -> Column | None:
    if _unfit(F.lit(None), element) is None:
        return None
    return F.exists(array, lambda item: _unfit(item, element))  # type: ignore[arg-type, return-value]


def _plain(kind: T.DataType) -> T.DataType:
    return kind.sqlType() if isinstance(kind, T.UserDefinedType) else kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
