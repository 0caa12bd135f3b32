"""Nothing flips before all copies are there; those that are there are kept up first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.strategies import replicated
from midstream.placement.strategies.contract import Moving, Step


@given(st.permutations(range(6)), st.frozensets(st.integers(0, 5)))
def test_all_flip_at_once_when_all_are_ready(waiting: list[int], ready: frozenset[int]) -> None:
    step = replicated().step(Moving(tuple(waiting), ready))
    if ready == set(range(6)):
        assert step == Step(flip=ready)
    else:
        there, missing = ([group for group in waiting if (group in ready) == is_so] for is_so in (True, False))
        assert step == Step(fetch=(*there, *missing)), "what is there must follow, or it falls behind"


def test_copies_of_groups_that_do_not_move_count_for_nothing() -> None:
    assert replicated().step(Moving((1,), frozenset({0, 2}))).flip == frozenset()
    assert replicated().step(Moving((1,), frozenset({0, 1}))).flip == {1}
