"""Second copies: spread over all other executors, dropped when nobody needs them, and in time for a loss."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.move import Move
from midstream.placement.standbys import Standbys, wanted
from midstream.placement.strategies.contract import Strategy
from midstream.placement.strategies.live import Live
from midstream.placement.strategies.replicated import Replicated

EXECUTORS = ["a", "b", "c"]


@given(st.lists(st.sampled_from(EXECUTORS), min_size=1, max_size=40), st.integers(1, 3))
def test_no_copy_lies_at_home_and_each_group_has_as_many_as_there_can_be(homes: list[str], standbys: int) -> None:
    copies = wanted(homes, EXECUTORS, standbys)
    assert all(homes[group] != executor for group, executor in copies)
    assert len(set(copies)) == len(copies)
    assert Counter(group for group, _ in copies) == dict.fromkeys(range(len(homes)), min(standbys, 2))


def test_the_groups_of_a_lost_executor_come_to_all_others() -> None:
    copies = wanted(["a"] * 12, EXECUTORS, 1)
    assert Counter(executor for _, executor in copies) == {"b": 6, "c": 6}


def test_a_copy_counts_once_it_was_brought_and_goes_when_another_executor_has_it() -> None:
    standbys = Standbys()
    assert standbys.ask(["a"], ["a", "b"], 1) == ((0, "b"),)
    assert standbys.home(0, ["b"]) is None, "it was only asked for"
    standbys.after([(0, "b"), (1, "b")])
    assert standbys.home(0, ["a", "b"]) == "b"
    assert standbys.home(0, ["a", "c"]) is None, "its executor is lost too"
    assert standbys.left(["a"]) == []
    standbys.ask(["a"], ["a", "b"], 0)
    assert standbys.left(["a"]) == [(0, "b")]
    assert standbys.left(["b"]) == [], "the home keeps its copy"


@pytest.mark.parametrize("strategy", [Live(), Replicated()])
def test_a_move_to_where_copies_stand_is_only_a_flip(strategy: Strategy) -> None:
    move = Move.begun(["a", "a"], ["b", "b"], strategy, {(0, "b"), (1, "b")})
    assert move.step({}).flip == {0, 1}
    assert Move.begun(["a", "a"], ["b", "b"], strategy, {(0, "c"), (1, "c")}).step({}).flip == frozenset()
