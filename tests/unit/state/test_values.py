"""Values of declared state types: what fits comes back as written, what does not is refused with its name."""

from __future__ import annotations

import datetime as dt
import struct
from collections import namedtuple
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.values import Wire, micros_of, moment_of

UTC = dt.timezone.utc
UTC_TIME = pa.timestamp("us", tz="UTC")
POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])


def there_and_back(type: pa.DataType, value: Any) -> Any:
    """What is read after a value was written, stored as bytes and loaded again."""
    wire = Wire(type, "state 'x'")
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(wire.checked(value)))
    return None if stored is None else wire.unpack(stored)


moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(9999, 12, 30)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)
SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(),
    UTC_TIME: moments,
    pa.date32(): st.dates(),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
}


def of_type(type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(type):
        return st.lists(of_type(type.value_type) | st.none(), max_size=4)
    if pa.types.is_map(type):
        return st.dictionaries(of_type(type.key_type), of_type(type.item_type) | st.none(), max_size=4)
    if pa.types.is_struct(type):
        return st.fixed_dictionaries({field.name: of_type(field.type) | st.none() for field in type})
    return SIMPLE[type]


simple_types = st.sampled_from(list(SIMPLE))
types = st.recursive(
    simple_types,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, simple_types, inner),
        st.builds(lambda a, b: pa.struct([("a", a), ("b", b)]), inner, inner),
    ),
    max_leaves=4,
)


@given(st.data())
def test_a_value_comes_back_as_it_was_written(data: st.DataObject):
    type = data.draw(types)
    value = data.draw(of_type(type) | st.none())
    assert there_and_back(type, value) == value


@pytest.mark.parametrize(
    ("type", "written", "read"),
    [
        (pa.int64(), np.int32(7), 7),
        (pa.float64(), 1, 1.0),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.float64(), Decimal("1.5"), 1.5),
        (pa.binary(), bytearray(b"x"), b"x"),
        (pa.decimal128(10, 2), 7, Decimal("7.00")),
        (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
        (UTC_TIME, dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        (
            UTC_TIME,
            dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            dt.datetime(2020, 1, 1, tzinfo=UTC),
        ),
        (pa.list_(pa.int64()), (1, None), [1, None]),
        (pa.list_(pa.int64()), range(3), [0, 1, 2]),
        (POINT, (1, "a"), {"x": 1, "y": "a"}),
        (POINT, namedtuple("Point", "x y")(1, "a"), {"x": 1, "y": "a"}),
        (POINT, {"y": "a"}, {"x": None, "y": "a"}),
    ],
)
def test_what_python_counts_as_the_type_is_accepted(type: pa.DataType, written: Any, read: Any):
    found = there_and_back(type, written)
    assert found == read
    assert repr(found) == repr(read)


def test_a_float_is_rounded_to_the_width_of_its_type_at_once():
    (rounded,) = struct.unpack("<f", struct.pack("<f", 0.1))
    assert there_and_back(pa.float32(), 0.1) == rounded != 0.1
    assert there_and_back(pa.float64(), 0.1) == 0.1


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int8(), 128),
        (pa.int32(), -(2**31) - 1),
        (pa.int64(), 2**63),
        (pa.int64(), True),
        (pa.int64(), 1.0),
        (pa.int64(), "1"),
        (pa.float64(), "1.0"),
        (pa.float64(), True),
        (pa.float64(), 10**400),
        (pa.float32(), 1e39),
        (pa.string(), b"x"),
        (pa.string(), 1),
        (pa.bool_(), 1),
        (pa.binary(), "x"),
        (UTC_TIME, dt.date(2020, 1, 1)),
        (UTC_TIME, 0),
        (pa.date32(), dt.datetime(2020, 1, 1)),
        (pa.date32(), "2020-01-01"),
        (pa.decimal128(10, 2), Decimal("1.234")),
        (pa.decimal128(4, 2), Decimal("100")),
        (pa.decimal128(10, 2), Decimal("NaN")),
        (pa.decimal128(10, 2), 0.1),
        (pa.decimal128(10, 2), "ten"),
        (pa.list_(pa.int64()), 1),
        (pa.list_(pa.int64()), ["a"]),
        (pa.list_(pa.string()), "text"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}),
        (pa.map_(pa.string(), pa.int64()), {None: 1}),
        (POINT, (1,)),
        (POINT, (1, "a", 2)),
        (POINT, {"x": "a"}),
        (POINT, {"x": 1, "z": 2}),
        (pa.list_(POINT), [{"x": 1}, 3]),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_state_and_the_value(type: pa.DataType, value: Any):
    with pytest.raises(StateError) as refusal:
        Wire(type, "state 'total' of operator 'sums'").checked(value)
    assert str(refusal.value).startswith(f"state 'total' of operator 'sums' is declared as {type}; {value!r}")


def test_a_type_that_cannot_be_stored_is_refused():
    with pytest.raises(StateError, match="duration"):
        Wire(pa.duration("us"), "state 'x'")


def test_the_key_of_a_map_must_be_there_and_both_zeros_are_one_key():
    with pytest.raises(StateError, match="a key of state 'm' cannot be None"):
        Wire(pa.string(), "a key of state 'm'").key(None)
    floats = Wire(pa.float64(), "a key of state 'm'")
    assert str(floats.key(-0.0)) == "0.0"
    assert str(floats.checked(-0.0)) == "-0.0"


@given(moments)
def test_moments_are_counted_in_microseconds_since_1970_in_utc(moment: dt.datetime):
    assert moment_of(micros_of(moment)) == moment
    assert micros_of(moment + dt.timedelta(microseconds=1)) == micros_of(moment) + 1


def test_a_moment_without_a_zone_is_in_utc():
    assert micros_of(dt.datetime(1970, 1, 2)) == 86_400_000_000 == micros_of(dt.datetime(1970, 1, 2, tzinfo=UTC))
    assert moment_of(-1) == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
