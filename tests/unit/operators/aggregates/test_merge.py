"""Declared aggregates against naive Python, epoch by epoch."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.merge import Merger
from tests.support.aggregating import NUMBERS, ORACLES, UTC, Row, compiled, equal, rows, run, size_of, spec

some_floats = st.sampled_from([0.1, -0.1, 1e16, -1e16, 3.0, 1e-9, 0.0, -0.0]) | st.floats(-1e6, 1e6)
all_floats = some_floats | st.sampled_from([math.nan, math.inf, -math.inf])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-128, 127),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**50), 2**50),
    "float": st.floats(-100, 100, width=32),
    "double": all_floats,
    "boolean": st.booleans(),
    "timestamp": st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2050, 1, 1)).map(lambda t: t.replace(tzinfo=UTC)),
    "date": st.dates(dt.date(1960, 1, 1), dt.date(2050, 1, 1)),
}
keys = st.integers(0, 3)


def rows_of(*columns: str) -> st.SearchStrategy[list[list[Row]]]:
    row = st.fixed_dictionaries(
        {
            "key": keys,
            "at": st.integers(-2, 2),
            "tie": st.integers(-(2**63), 2**63 - 1),
            **{column: VALUES[column] | st.none() for column in columns},
        }
    )
    return st.lists(st.lists(row, max_size=12, unique_by=lambda row: row["tie"]), min_size=1, max_size=3)


CASES = [("count", ""), *(("count", column) for column in ("int", "double"))]
CASES += [(function, column) for function in ("sum", "mean") for column in NUMBERS]
CASES += [(function, column) for function in ("min", "max", "first", "last") for column in VALUES]


ALL_FIXED = compiled(**{f"{function} {column}": spec(function, column) for function, column in CASES})


@given(rows_of(*VALUES))
def test_an_aggregate_is_what_naive_python_computes_over_all_epochs(epochs: list[list[Row]]):
    found, _ = run(ALL_FIXED, epochs, combine=False)
    by_key: dict[int, list[Row]] = {}
    for epoch in epochs:
        for row in epoch:
            by_key.setdefault(row["key"], []).append(row)
    assert found.keys() == by_key.keys()
    for key, mine in by_key.items():
        for function, column in CASES:
            result, expected = found[key][f"{function} {column}"], ORACLES[function](mine, column)
            agrees = equal(result, expected, size_of(mine, column))
            assert agrees, f"{function}({column}) of {key}: {result!r}, not {expected!r}"


@given(rows_of(*VALUES))
def test_rows_that_the_jvm_has_combined_give_the_same_bits_as_raw_rows(epochs: list[list[Row]]):
    raw, one = run(ALL_FIXED, epochs, combine=False)
    folded, other = run(ALL_FIXED, epochs, combine=True)
    assert one.state == other.state
    assert repr(raw) == repr(folded)


@given(rows_of("double", "bigint", "float"), st.randoms(), st.booleans())
@example([rows("double", *((0, 0.1 * i) for i in range(20)))], random.Random(1), False)
@example([rows("double", (0, -0.0), (0, 0.0), (1, 0.0), (1, -0.0))], random.Random(2), False)
def test_the_order_of_rows_does_not_change_a_bit(epochs: list[list[Row]], shuffle: random.Random, combine: bool):
    plan = compiled(s=ms.sum("double"), m=ms.mean("double"), low=ms.min("double"), high=ms.max("double"))
    shuffled = [shuffle.sample(rows, len(rows)) for rows in epochs]
    assert run(plan, epochs, combine=combine)[1].state == run(plan, shuffled, combine=combine)[1].state


def test_values_that_are_missing_do_not_change_a_bit_of_a_sum():
    drawn = random.Random(7)
    pairs = [(i % 10, drawn.uniform(-1, 1)) for i in range(1_000)]
    gaps = [pair for key, value in pairs for pair in ((key, value), (key, None))]
    plan = compiled(s=ms.sum("double"))
    states = [
        run(plan, [rows("double", *epoch)], combine=combine)[1].state
        for epoch in (pairs, gaps)
        for combine in (False, True)
    ]
    sums = [{key: value[:8] for key, value in state.items()} for state in states]
    assert all(each == sums[0] for each in sums)
    found, _ = run(plan, [rows("double", *pairs)], combine=False)
    for key in range(10):
        assert math.isclose(found[key]["s"], math.fsum(value for k, value in pairs if k == key), rel_tol=1e-12)


# --- integers that do not fit ---------------------------------------------------------------------------------------

BIG = 2**62


@pytest.mark.parametrize(
    "epochs",
    [
        [[(0, BIG), (0, BIG)]],
        [[(0, -BIG), (0, -BIG), (0, -1)]],
        [[(1, 1), (0, BIG), (0, BIG), (2, 1)]],
        [[(0, BIG)], [(0, BIG)]],
        [[(0, -BIG)], [(0, -BIG)], [(0, -1)]],
        [[(0, 2**63 - 1)], [(0, 1)]],
    ],
)
def test_a_sum_beyond_64_bits_is_refused(epochs: list[list[tuple[int, int]]]):
    with pytest.raises(StateError, match="the 'sum bigint' of a key does not fit into 64 bits; cast the column"):
        run(compiled(s=ms.sum("bigint")), [rows("bigint", *epoch) for epoch in epochs], combine=False)


@pytest.mark.parametrize(
    ("epochs", "sums"),
    [
        ([[(0, BIG), (1, BIG), (0, 1), (1, 1)]], {0: BIG + 1, 1: BIG + 1}),
        ([[(0, BIG), (0, BIG), (0, -BIG)]], {0: BIG}),
        ([[(0, BIG), (0, BIG - 1)]], {0: 2**63 - 1}),
        ([[(0, -BIG), (0, -BIG)]], {0: -(2**63)}),
        ([[(0, -(2**63)), (0, 2**63 - 1)]], {0: -1}),
        (
            [[(key, 2**63 - 1) for key in range(50)], [(key, -1) for key in range(50)]],
            dict.fromkeys(range(50), 2**63 - 2),
        ),
    ],
)
def test_a_sum_that_fits_is_exact(epochs: list[list[tuple[int, int]]], sums: dict[int, int]):
    found, _ = run(compiled(s=ms.sum("bigint")), [rows("bigint", *epoch) for epoch in epochs], combine=False)
    assert {key: row["s"] for key, row in found.items()} == sums


# --- stored ---------------------------------------------------------------------------------------------------------


def test_keys_without_stored_state_are_not_known():
    merger = Merger(compiled(s=ms.sum("double"), low=ms.min("string")))
    stored = merger.encode({"sum double": np.array([1.5]), "count double": np.array([2]), "min string": ["a"]})
    columns, known = merger.decode([None, stored[0], None])
    assert known.tolist() == [False, True, False]
    assert columns["sum double"].tolist() == [0.0, 1.5, 0.0]
    assert columns["min string"] == [None, "a", None]
    _, none_known = merger.decode([None])
    assert none_known.tolist() == [False]
