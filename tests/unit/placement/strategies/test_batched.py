"""So many groups in each epoch, the busiest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.move import Move
from midstream.placement.strategies import batched, named
from midstream.placement.strategies.contract import Moving, Step


@given(st.permutations(range(7)), st.integers(1, 9))
def test_the_first_few_of_those_that_wait_flip_and_nothing_is_fetched(waiting: list[int], groups: int) -> None:
    assert batched(groups).step(Moving(tuple(waiting))) == Step(flip=frozenset(waiting[:groups]))


def test_those_with_most_rows_go_first() -> None:
    assert Move.begun(["a"] * 4, ["b"] * 4, batched(2)).step({3: 9.0, 1: 5.0}).flip == {3, 1}


@pytest.mark.parametrize(
    ("strategy", "groups", "shown"), [(named("batched"), 4, "Batched(4)"), (batched(9), 9, "Batched(9)")]
)
def test_it_says_how_many(strategy: batched, groups: int, shown: str) -> None:
    assert (strategy.groups, str(strategy)) == (groups, shown)
    assert strategy.copies_first, "groups that flip are copied whole before a row is processed"
