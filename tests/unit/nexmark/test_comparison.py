"""Results are compared as multisets, and doubles up to the last digits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from midstream.errors import PlanError
from midstream.nexmark.comparison import SAMPLES, Comparison, compared

TIME = pa.timestamp("us", "UTC")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LONG = pa.int64()
BID = pa.schema([("auction", LONG), ("bidder", LONG), ("price", LONG), ("ts", TIME)])
PRICES = pa.schema([("seller", pa.int64()), ("price", pa.float64())])


def at(seconds: float) -> datetime:
    """A time, given in seconds since the first event."""
    return START + timedelta(seconds=seconds)


def table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    names = schema.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)


def prices(*rows: tuple[Any, ...]) -> pa.Table:
    return table(rows, PRICES)


def test_the_order_of_rows_and_columns_does_not_count() -> None:
    comparison = compared(prices((2, 0.5), (1, 1.0)).select(["price", "seller"]), prices((1, 1.0), (2, 0.5)))
    assert comparison == Comparison(rows=2, missing=0, unexpected=0)
    assert comparison.is_equal
    assert str(comparison) == "all 2 rows are as expected"


def test_a_duplicate_is_unexpected() -> None:
    comparison = compared(prices((1, 1.0), (1, 1.0), (1, 1.0)), prices((1, 1.0)))
    assert (comparison.missing, comparison.unexpected, comparison.is_equal) == (0, 2, False)
    assert comparison.unexpected_samples[0] == {"seller": 1, "price": 1.0}


def test_a_missing_row_is_missing_also_where_another_is_there_once_too_often() -> None:
    comparison = compared(prices((1, 1.0), (1, 1.0)), prices((1, 1.0), (2, 1.0)))
    assert (comparison.rows, comparison.missing, comparison.unexpected) == (2, 1, 1)
    assert str(comparison).splitlines() == [
        "of 2 rows 1 are unexpected, and 1 are missing",
        "  unexpected: {'seller': 1, 'price': 1.0}",
        "  missing: {'seller': 2, 'price': 1.0}",
    ]


def test_doubles_may_differ_in_the_last_digits_but_in_no_others() -> None:
    true = 1e8 / 3
    assert compared(prices((1, true * (1 + 9e-10))), prices((1, true))).is_equal
    assert not compared(prices((1, true * (1 + 2e-9))), prices((1, true))).is_equal
    assert not compared(prices((2, true * (1 + 9e-10))), prices((1, true))).is_equal


def test_rows_with_almost_equal_doubles_are_counted_too() -> None:
    near = [1.0 + number * 1e-12 for number in range(5)]
    assert compared(prices(*((1, value) for value in near[:4])), prices(*[(1, near[4])] * 4)).is_equal
    comparison = compared(prices(*((1, value) for value in near)), prices(*[(1, 1.5)], *[(1, near[4])] * 3))
    assert (comparison.missing, comparison.unexpected) == (1, 2)


def test_all_rows_may_be_off_by_the_last_bit() -> None:
    true = [(number % 10, 100 * 0.908 * number) for number in range(1000)]
    off = [(seller, price * (1 + 3e-16)) for seller, price in true]
    assert compared(prices(*off), prices(*true)).is_equal
    wrong = compared(prices(*off[:500], (1, 0.5), *off[501:]), prices(*true))
    assert (wrong.missing_samples, wrong.unexpected_samples) == (
        ({"seller": 0, "price": 45400.0},), ({"seller": 1, "price": 0.5},)
    )  # fmt: skip


def test_nulls_are_values() -> None:
    assert compared(prices((None, None), (1, None)), prices((1, None), (None, None))).is_equal
    comparison = compared(prices((1, None)), prices((1, 0.0)))
    assert (comparison.missing, comparison.unexpected) == (1, 1)


def test_times_are_exact_in_any_form() -> None:
    bids = table([(1, 1, 1, at(0.000001))], BID)
    naive = bids.set_column(3, "ts", bids["ts"].cast(pa.timestamp("ns")))
    assert compared(naive, bids).is_equal
    assert not compared(table([(1, 1, 1, at(0.000002))], BID), bids).is_equal


def test_tables_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(PlanError, match="has the columns seller, price, epoch, but must have seller, price"):
        compared(prices((1, 1.0)).append_column("epoch", pa.array([1])), prices((1, 1.0)))
    with pytest.raises(PlanError, match="do not fit the types expected"):
        compared(pa.table({"seller": [1.5], "price": [1.0]}), prices((1, 1.0)))


def test_only_a_few_of_many_differences_are_shown() -> None:
    comparison = compared(prices(*((number, 1.0) for number in range(100))), prices())
    assert comparison.unexpected == 100
    assert len(comparison.unexpected_samples) == SAMPLES
