"""Arrow columns as plain Python values, as functions of the user get them.

Times are moments in UTC: rows come with the zone of the Spark session, in which a day may have 23 hours and an hour may
come twice. Spark's times and dates go further than Python's: outside the years 1 to 9999 the first or last is given.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column.

    >>> new_york = pa.array([0], pa.timestamp("us", "America/New_York"))
    >>> [str(moment) for moment in python_values(new_york)]
    ['1970-01-01 00:00:00+00:00']
    >>> [str(moment) for moment in python_values(pa.array([1 << 62], pa.timestamp("us")))]
    ['9999-12-31 23:59:59.999999']
    """
    wanted = _in_utc(column.type)
    if wanted != column.type:
        column = column.cast(wanted)
    values: list[Any]
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a year that Python does not have
        values = _clamped(column).to_pylist()
    return values


def _in_utc(type: pa.DataType) -> pa.DataType:
    """Return the same type with all times in UTC."""
    kinds = pa.types
    if kinds.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    if kinds.is_list(type):
        return pa.list_(type.value_field.with_type(_in_utc(type.value_type)))
    if kinds.is_struct(type):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in type])
    if kinds.is_map(type):
        return pa.map_(_in_utc(type.key_type), type.item_field.with_type(_in_utc(type.item_type)))
    return type


def _clamped(column: pa.Array) -> pa.Array:
    """Clamp to the years that Python has."""
    type, kinds = column.type, pa.types
    if kinds.is_timestamp(type) or kinds.is_date(type):
        number = pa.int32() if kinds.is_date32(type) else pa.int64()
        ends = (date.min, date.max) if kinds.is_date(type) else (datetime.min, datetime.max)
        naive = type if kinds.is_date(type) else pa.timestamp(type.unit)
        first, last = (pa.scalar(end, naive).cast(number) for end in ends)
        numbers = column.view(number)
        return pc.min_element_wise(pc.max_element_wise(numbers, first, skip_nulls=False), last, skip_nulls=False).view(
            type
        )
    if kinds.is_list(type):
        return pa.ListArray.from_arrays(column.offsets, _clamped(column.values), type, mask=column.is_null())
    if kinds.is_struct(type):
        parts = [_clamped(column.field(i)) for i in range(type.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(type), mask=column.is_null())
    if kinds.is_map(type):
        keys, items = _clamped(column.keys), _clamped(column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type, mask=column.is_null())
    return column
