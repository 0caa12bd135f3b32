"""Columns of keys, compared with a sorted list."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.runs.keys import (
    MISSING,
    FixedKeys,
    IntegerKeys,
    KeyColumn,
    VariedKeys,
    Wanted,
    concatenated,
    key_column,
)
from tests.support.run_parts import ENTRIES, SOME

KEYS = SOME.flatmap(lambda keys: st.sets(keys, min_size=1, max_size=40)).map(sorted)
WANTED = SOME.flatmap(lambda keys: st.lists(keys, max_size=20))


def matrix(keys: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)


@pytest.mark.parametrize(
    ("keys", "form"),
    [
        ([b"\1\1" + bytes(8), b"\1\1" + b"\xff" * 8], IntegerKeys),
        ([b"\1\0" + bytes(8), b"\1\1" + bytes(8)], FixedKeys),  # two prefixes: one of them is null
        ([b"\1abc", b"\1abd"], FixedKeys),
        ([b"\1a", b"\1ab"], VariedKeys),
    ],
)
def test_keys_have_the_smallest_form_that_fits(keys: list[bytes], form: type[KeyColumn]) -> None:
    assert isinstance(key_column(keys), form)
    assert key_column(keys).to_list(0, 9) == keys


def test_integers_are_stored_as_the_numbers_that_they_are() -> None:
    column = key_column([b"\1\1" + (n + (1 << 63)).to_bytes(8, "big") for n in (-5, 0, 7)])
    assert isinstance(column, IntegerKeys)
    assert column.values.tolist() == [-5, 0, 7]


@given(KEYS, WANTED)
def test_every_key_is_found_where_it_is_and_no_other(keys: list[bytes], others: list[bytes]) -> None:
    column, wanted = key_column(keys), [*others, *keys]
    places = [keys.index(key) if key in keys else MISSING for key in wanted]
    assert column.find(Wanted(wanted)).tolist() == places
    assert [column.place_of(key) for key in wanted] == places
    if len({len(key) for key in wanted}) == 1:
        assert column.find(Wanted(matrix(wanted))).tolist() == places


@given(KEYS, WANTED, st.binary(max_size=3), st.integers(0, 12))
def test_the_first_key_from_a_bound_is_that_of_the_order_of_bytes(
    keys: list[bytes], others: list[bytes], more: bytes, size: int
) -> None:
    for key in [*others, *keys]:
        for bound in (key, key + more, key[:size]):
            assert key_column(keys).first_from(bound) == bisect_left(keys, bound)


@given(st.lists(KEYS, min_size=1, max_size=3))
def test_keys_of_several_columns_are_put_in_order_equal_ones_as_they_are(columns: list[list[bytes]]) -> None:
    every = concatenated([key_column(keys) for keys in columns])
    plain = [key for keys in columns for key in keys]
    order = every.order()
    assert order.tolist() == sorted(range(len(plain)), key=plain.__getitem__)
    arranged = [plain[i] for i in order.tolist()]
    assert every.differ_in(order).tolist() == [i == 0 or arranged[i] != arranged[i - 1] for i in range(len(plain))]
    taken = every.take(order)
    assert taken.to_list(0, len(plain)) == arranged


@given(ENTRIES)
def test_keys_taken_out_can_be_looked_up_again(entries: dict[bytes, bytes | None]) -> None:
    keys = sorted(entries)
    column = key_column(keys).take(np.arange(0, len(keys), 2))
    assert column.find(Wanted(keys)).tolist() == [i // 2 if i % 2 == 0 else MISSING for i in range(len(keys))]


def test_keys_with_the_same_hash_are_told_apart() -> None:
    """Nobody knows such keys: the index is made by hand."""
    keys = [b"a", b"bb", b"c", b"dd"]
    hashes = np.full(4, 7, np.uint64)
    column = VariedKeys(pa.array(keys), hashes, np.array([2, 0, 3, 1], np.uint32))
    wanted = Wanted([b"dd", b"x", b"a", b"bb"])
    wanted.__dict__["hashes"] = np.full(4, 7, np.uint64)
    assert column.find(wanted).tolist() == [3, MISSING, 0, 1]


def test_nothing_is_found_in_no_keys_and_no_keys_in_anything() -> None:
    empty = VariedKeys.indexed(pa.array([], pa.binary()))
    assert empty.find(Wanted([b"a"])).tolist() == [MISSING]
    assert empty.first_from(b"a") == 0
    assert key_column([b"\1abc"]).find(Wanted([])).tolist() == []
