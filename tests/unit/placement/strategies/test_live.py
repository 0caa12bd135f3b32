"""Each group flips as soon as its copy is there; the busiest are copied first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.move import Move
from midstream.placement.strategies import live, replicated
from midstream.placement.strategies.contract import Moving, Step

WAITING = st.permutations(range(6))


@given(WAITING, st.frozensets(st.integers(0, 8)))
def test_what_is_ready_flips_and_the_rest_is_fetched_in_its_order(waiting: list[int], ready: frozenset[int]) -> None:
    step = live().step(Moving(tuple(waiting), ready))
    assert step.flip == {group for group in waiting if group in ready}
    assert list(step.fetch) == [group for group in waiting if group not in ready]
    assert step.both == frozenset()


def test_those_with_most_rows_are_fetched_first() -> None:
    assert Move.begun(["a"] * 4, ["b"] * 4, live()).step({3: 9.0, 1: 5.0}).fetch == (3, 1, 0, 2)


def test_live_flips_what_is_ready_and_replicated_waits_for_all() -> None:
    moving = Moving((2, 1, 0), frozenset({1}))
    assert live().step(moving).flip == {1}
    assert replicated().step(moving).flip == set()


def test_nothing_ready_is_nothing_flipped() -> None:
    assert live().step(Moving((1, 0))) == Step(fetch=(1, 0))
