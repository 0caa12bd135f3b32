"""The keys of the rows that benchmarks run on: within bounds, and as skewed as their law says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from midstream.bench.rows import PRICE, Rows
from tests.support.spark_sql import column

VALUES = pa.array(range(20_000), pa.int64())


def keys(rows: Rows) -> list[int]:
    return [int(key) for key in column(rows.key, value=VALUES)]


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("count", [1, 7, 1_000])
def test_keys_lie_in_their_bounds(count: int, skew: float):
    found = keys(Rows(count, skew))
    assert min(found) >= 0
    assert max(found) < count


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
def test_the_share_of_a_rank_is_the_integral_of_its_law(skew: float):
    count, found = 50, Counter(keys(Rows(50, skew)))
    grid = np.linspace(1, count + 1, count * 2_000 + 1)
    middle = (grid[:-1] + grid[1:]) / 2
    shares = (middle**-skew).reshape(count, 2_000).sum(axis=1)  # by rank
    shares /= shares.sum()
    for rank in (0, 1, 2, 10, 49):
        expected = shares[rank] * len(VALUES)
        assert abs(found[rank] - expected) < 6 * np.sqrt(expected) + 1, f"rank {rank}"


def test_without_skew_all_keys_are_as_many():
    found = Counter(keys(Rows(10)))
    assert all(abs(count - 2_000) < 300 for count in found.values())
    assert len(found) == 10


def test_a_price_is_a_whole_number_from_1_to_1000():
    assert set(column(PRICE, value=VALUES)) == set(range(1, 1_001))
