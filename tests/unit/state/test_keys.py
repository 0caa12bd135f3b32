"""Keys as bytes: what is encoded comes back, equal keys are equal bytes, rows are arranged as a dictionary would."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.keys import KeyCodec

UTC = dt.timezone.utc
moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))

# type -> values, as Python holds them
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0]),
    pa.timestamp("us", tz="UTC"): moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.timestamp("us"): moments,
    pa.date32(): st.dates(),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.decimal128(10, 2): st.decimals(-(10**7), 10**7, places=2, allow_nan=False),
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=18, allow_nan=False),
}
FIXED = [type for type in TYPES if not (pa.types.is_decimal(type) or type in (pa.string(), pa.binary()))]
ORDERED = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.date32(), pa.timestamp("us", tz="UTC")]


def codec(*types: pa.DataType) -> KeyCodec:
    return KeyCodec(pa.schema([(f"c{i}", type) for i, type in enumerate(types)]))


def column(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, type)


@st.composite
def tables(draw: st.DrawFn, kinds: list[pa.DataType] | None = None) -> tuple[list[pa.DataType], list[tuple[Any, ...]]]:
    """The types of a key, and rows of keys that often repeat."""
    types = draw(st.lists(st.sampled_from(kinds or list(TYPES)), min_size=1, max_size=3))
    pool = draw(st.lists(st.tuples(*(TYPES[type] | st.none() for type in types)), min_size=1, max_size=6))
    return types, draw(st.lists(st.sampled_from(pool), max_size=20))


def columns_of(types: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [column([row[i] for row in rows], type) for i, type in enumerate(types)]


# --- there and back -------------------------------------------------------------------------------------------------


@given(tables())
def test_a_key_comes_back_as_it_was(drawn: tuple[list[pa.DataType], list[tuple[Any, ...]]]):
    types, rows = drawn
    columns = columns_of(types, rows)
    encoded = codec(*types).encode(columns).to_pylist()
    decoded = codec(*types).decode(encoded)
    assert [array.type for array in decoded] == types
    assert [array.to_pylist() for array in decoded] == [array.to_pylist() for array in columns]


@pytest.mark.parametrize("type", [pa.float32(), pa.float64()], ids=str)
def test_both_zeros_are_one_key_and_all_nans_are_another(type: pa.DataType):
    width = type.bit_width // 8
    nans = [b"\x7f\xc0", b"\xff\xc0", b"\x7f\xc1"] if width == 4 else [b"\x7f\xf8", b"\xff\xf8", b"\x7f\xf9"]
    raw = [struct.pack(">f" if width == 4 else ">d", value) for value in (0.0, -0.0, 1.0)]
    raw += [nan.ljust(width, b"\0") for nan in nans]
    floats = np.frombuffer(b"".join(raw), f">f{width}").astype(f"<f{width}")
    zero, minus_zero, one, *others = codec(type).encode([pa.array(floats)]).to_pylist()
    assert zero == minus_zero != one
    assert len(set(others)) == 1
    (back,) = codec(type).decode([minus_zero, others[0]])
    assert math.copysign(1.0, back[0].as_py()) == 1.0
    assert math.isnan(back[1].as_py())


@pytest.mark.parametrize("type", list(TYPES), ids=str)
def test_null_is_a_key_of_its_own(type: pa.DataType):
    nothing = {pa.string(): "", pa.binary(): b"", pa.bool_(): False, pa.date32(): dt.date(1970, 1, 1)}
    zero = dt.datetime(1970, 1, 1) if pa.types.is_timestamp(type) else Decimal(0) if pa.types.is_decimal(type) else 0
    null, zeroed = codec(type).encode([column([None, nothing.get(type, zero)], type)]).to_pylist()
    assert null != zeroed
    assert codec(type).decode([null])[0].to_pylist() == [None]


@given(st.data())
def test_byte_order_is_value_order_for_integers_booleans_and_times(data: st.DataObject):
    type = data.draw(st.sampled_from(ORDERED))
    values = data.draw(st.lists(TYPES[type], max_size=10))
    encoded = codec(type).encode([column(values, type)]).to_pylist()
    assert sorted(encoded) == codec(type).encode([column(sorted(values), type)]).to_pylist()


def test_columns_do_not_run_into_each_other():
    pairs = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), (None, "abc"), ("abc", None)]
    two = codec(pa.string(), pa.string())
    assert len(set(two.encode(columns_of([pa.string()] * 2, pairs)).to_pylist())) == len(pairs)


def test_decimals_of_one_value_are_one_key():
    values = [Decimal("1"), Decimal("1.0"), Decimal("1.00"), Decimal("0"), Decimal("-0.00"), Decimal("0E+1")]
    encoded = codec(pa.decimal128(10, 2)).encode([column(values, pa.decimal128(10, 2))]).to_pylist()
    assert len(set(encoded[:3])) == 1
    assert len(set(encoded[3:])) == 1


def test_a_part_of_an_array_is_encoded_as_that_part():
    types = [pa.int32(), pa.string(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    rows = [(i, str(i), i % 2 == 0, dt.datetime(2020, 1, 1 + i, tzinfo=UTC)) for i in range(10)]
    parts = [array.slice(3, 4) for array in columns_of(types, rows)]
    for used in (types, [pa.int32(), pa.bool_(), pa.timestamp("us", tz="UTC")]):
        some = [parts[types.index(type)] for type in used]
        expected = [[row[types.index(type)] for row in rows[3:7]] for type in used]
        assert [c.to_pylist() for c in codec(*used).decode(codec(*used).encode(some).to_pylist())] == expected


def test_nothing_is_encoded_to_nothing():
    for types in ([pa.int64()], [pa.string()], [pa.int64(), pa.string()], [pa.date32(), pa.bool_()]):
        empty = columns_of(types, [])
        assert codec(*types).encode(empty).to_pylist() == []
        assert [array.to_pylist() for array in codec(*types).decode([])] == [[] for _ in types]
        assert codec(*types).arrange(empty, np.zeros(0, np.int32)).keys == []


# --- arranged -------------------------------------------------------------------------------------------------------


def expected_arrangement(keys: list[bytes], groups: list[int]) -> list[tuple[int, bytes, list[int]]]:
    """By group and key: the numbers of its rows, in the order they came."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for i, (group, key) in enumerate(zip(groups, keys, strict=True)):
        found.setdefault((group, key), []).append(i)
    return [(group, key, found[group, key]) for group, key in sorted(found)]


def arrangement(arranged: Any, prefix: bytes = b"") -> list[tuple[int, bytes, list[int]]]:
    edges = [*arranged.starts.tolist(), len(arranged.order)]
    rows = [arranged.order[a:b].tolist() for a, b in pairwise(edges)]
    keys = [key.removeprefix(prefix) for key in arranged.keys]
    return list(zip(arranged.groups.tolist(), keys, rows, strict=True))


@given(tables() | tables(FIXED) | tables([pa.int64()]) | tables([pa.int32()]), st.integers(1, 5), st.randoms())
def test_rows_are_sorted_by_group_and_key_and_equal_keys_stand_together_in_their_order(
    drawn: tuple[list[pa.DataType], list[tuple[Any, ...]]], groups: int, random: Any
):
    types, rows = drawn
    columns = columns_of(types, rows)
    keys = codec(*types).encode(columns).to_pylist()
    group_of = {key: random.randrange(groups) for key in keys}
    owners = [group_of[key] for key in keys]
    for prefix in (b"", b"\1"):
        arranged = codec(*types).arrange(columns, np.array(owners, np.int32), prefix)
        assert arrangement(arranged, prefix) == expected_arrangement(keys, owners)
        assert all(key.startswith(prefix) for key in arranged.keys)
    quick = arrangement(codec(*types).arrange(columns, np.array(owners, np.int32), stable=False))
    assert [(group, key, sorted(rows)) for group, key, rows in quick] == expected_arrangement(keys, owners)


@pytest.mark.parametrize("type", [pa.int64(), pa.float64(), pa.string()], ids=str)
def test_a_key_that_comes_in_two_groups_is_two_keys(type: pa.DataType):
    value: Any = "1" if type == pa.string() else 1
    arranged = codec(type).arrange([column([value] * 4, type)], np.array([1, 0, 1, 0], np.int32))
    assert arranged.groups.tolist() == [0, 1]
    assert [rows for _, _, rows in arrangement(arranged)] == [[1, 3], [0, 2]]


def test_any_number_of_groups_may_be_used():
    groups = [70_001, 1, 65_537, 70_001, 40_000, 1]
    columns = [column([1, 2, 3, 1, 5, 2], pa.int64())]
    arranged = codec(pa.int64()).arrange(columns, np.array(groups, np.int32))
    assert arranged.groups.tolist() == [1, 40_000, 65_537, 70_001]


@given(st.lists(st.integers(-3, 3) | st.none(), max_size=20))
def test_keys_of_fixed_and_of_variable_width_are_arranged_alike(values: list[int | None]):
    """A key of an integer, alone and beside a constant text, groups the same rows."""
    groups = np.array([0 if value is None else value % 3 for value in values], np.int32)
    numbers = column(values, pa.int64())
    fixed = codec(pa.int64()).arrange([numbers], groups)
    variable = codec(pa.int64(), pa.string()).arrange([numbers, column(["x"] * len(values), pa.string())], groups)
    assert (fixed.matrix is None, variable.matrix is None) == (False, True)
    assert fixed.order.tolist() == variable.order.tolist()
    assert fixed.starts.tolist() == variable.starts.tolist()
    assert fixed.groups.tolist() == variable.groups.tolist()
    decoded = codec(pa.int64()).decode(fixed.keys)[0].to_pylist()
    assert decoded == codec(pa.int64(), pa.string()).decode(variable.keys)[0].to_pylist()


@given(tables(FIXED))
def test_the_matrix_of_keys_is_the_list_of_keys(drawn: tuple[list[pa.DataType], list[tuple[Any, ...]]]):
    types, rows = drawn
    arranged = codec(*types).arrange(columns_of(types, rows), np.zeros(len(rows), np.int32))
    assert arranged.matrix is not None
    assert [row.tobytes() for row in arranged.matrix] == arranged.keys
