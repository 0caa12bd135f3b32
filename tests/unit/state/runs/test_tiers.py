"""The rule of merging: few runs, and each entry written again a few times only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.runs.tiers import FAN_IN, MOST, chosen, due


@given(st.lists(st.integers(1, 10**9), max_size=MOST + 5))
def test_what_is_merged_are_several_of_the_newest_runs_and_leaves_no_more_than_there_may_be(rows: list[int]) -> None:
    count = due(rows)
    assert count == 0 or 2 <= count <= len(rows)
    assert len(rows) - max(count - 1, 0) <= MOST


@pytest.mark.parametrize("keys", [1, 50, 10_000])
def test_runs_stay_few_and_little_is_written_again_while_epochs_go_on(keys: int) -> None:
    """Each epoch changes 100 keys; of `keys` times 100 there are, the same one is merged away."""
    runs: list[int] = []
    most = written = 0
    for _ in range(2_000):
        runs.insert(0, 100)
        count = due(runs)
        if count:
            runs[:count] = [min(sum(runs[:count]), keys * 100)]
            written += runs[0]
        most = max(most, len(runs))
    assert most <= FAN_IN + FAN_IN * math.log(max(min(keys, 2_000), 4), FAN_IN)
    assert written / (2_000 * 100) <= 2 + 2 * math.log(max(min(keys, 2_000), 2), 2)


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(1, 100), max_size=MOST + 2)), st.integers(0, 500))
def test_no_more_is_written_than_there_may_be_but_for_groups_with_too_many_runs(
    runs: dict[int, list[int]], budget: int
) -> None:
    found = chosen(runs, budget)
    assert all(found[group] == due(runs[group]) for group in found)
    assert {group for group, rows in runs.items() if len(rows) > MOST} <= found.keys()
    assert sum(sum(runs[group][:count]) for group, count in found.items() if len(runs[group]) <= MOST) <= budget
