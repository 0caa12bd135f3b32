"""The heat of groups: rows are counted, the busiest come first, and what was long ago counts less."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.heat import cooled, counted, hottest_first

GROUPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)))
ROWS = st.dictionaries(st.integers(0, 9), st.integers(1, 50))


@given(GROUPS)
def test_rows_are_counted_by_group(rows: list[tuple[int, int]]):
    groups = np.array([group for group, _ in rows], np.int32)
    assert counted(groups) == Counter(groups.tolist())
    folded = Counter[int]()
    for group, count in rows:
        folded[group] += count
    found = counted(groups, np.array([count for _, count in rows], np.int64))
    assert found == {group: count for group, count in folded.items() if count}
    assert list(found) == sorted(found)
    assert {type(each) for pair in found.items() for each in pair} <= {int}, "reports are written as JSON"


def test_large_counts_are_exact():
    assert counted(np.array([2, 2], np.int32), np.array([1 << 52, 1], np.int64)) == {2: (1 << 52) + 1}


@given(st.lists(st.integers(0, 9), unique=True), ROWS, st.dictionaries(st.integers(0, 9), st.floats(0, 50)))
def test_the_hottest_come_first_and_each_once(groups: list[int], rows: dict[int, int], heat: dict[int, float]):
    found = hottest_first(groups, rows, heat)
    assert sorted(found) == sorted(groups)
    ranks = [(rows.get(group, 0), heat.get(group, 0.0), -group) for group in found]
    assert ranks == sorted(ranks, reverse=True)
    assert hottest_first(reversed(groups), rows, heat) == found, "the same whatever the order of asking"


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1e6)), st.lists(ROWS, max_size=3))
def test_an_epoch_adds_its_rows_to_what_is_left(heat: dict[int, float], counts: list[dict[int, int]]):
    found = cooled(heat, *counts)
    if not any(counts):
        assert found == heat
        assert found is not heat
        return
    assert found.keys() == heat.keys() | {group for each in counts for group in each}
    for group, hot in found.items():
        rows = sum(each.get(group, 0) for each in counts)
        assert hot == pytest.approx(heat.get(group, 0.0) * 0.8 + rows)


def test_a_group_that_rests_cools_and_one_that_is_always_as_busy_settles():
    heat: dict[int, float] = {}
    for _ in range(200):
        heat = cooled(heat, {1: 10}, {2: 1} if not heat else {})
    assert heat[1] == pytest.approx(10 / (1 - 0.8))
    assert heat[2] < 1e-9
