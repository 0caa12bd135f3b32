"""What every strategy promises: all groups come to their new place, each flips once, and nothing else moves."""

from __future__ import annotations

from collections import Counter

import pytest

from midstream.errors import PlanError
from midstream.placement.move import Move, Outcome
from midstream.placement.strategies import (
    Strategy,
    all_at_once,
    batched,
    live,
    named,
    on_demand,
    parallel,
    replicated,
    restart,
)
from midstream.placement.strategies.contract import Moving

STRATEGIES = [all_at_once(), batched(3), live(), on_demand(), parallel(), replicated(), restart()]
HOMES = ["a", "b"] * 8
TARGET = ["a", "b"] * 5 + ["c"] * 6
BUDGET = 2  # groups that a place copies per epoch


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_every_group_flips_once_to_its_target(strategy: Strategy) -> None:
    move, homes, flipped = Move.begun(HOMES, TARGET, strategy), list(HOMES), Counter[int]()
    copies: set[int] = set()
    assert move.waiting == set(range(10, 16))
    for _ in range(30):
        step = move.step({})
        assert step.flip <= move.waiting
        assert set(step.fetch) <= move.waiting - step.flip
        copies |= set([group for group in step.fetch if group not in copies][:BUDGET])
        flipped.update(step.flip)
        fetched = [group for group in step.fetch if group in copies]
        before = list(homes)
        for group in step.flip:
            homes[group] = TARGET[group]
        assert step.both <= copies, "only what is there can be processed"
        move = move.after(step, before, Outcome(frozenset("abc"), fetched, step.both))
        if move.is_done:
            break
    assert homes == TARGET
    assert flipped == dict.fromkeys(range(10, 16), 1)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_what_the_old_place_has_is_given_up_in_the_epoch_after(strategy: Strategy) -> None:
    move = Move.begun(["a", "a"], ["a", "b"], strategy)
    for _ in range(4):
        step = move.step({})
        move = move.after(step, ["a", "a"], Outcome(frozenset("ab"), step.fetch, step.both))
        if step.flip:
            break
    assert move.left == ((1, "a"),)
    assert not move.is_done
    assert move.after(move.step({}), ["a", "b"], Outcome(frozenset("ab"))).is_done


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_target_that_is_lost_gets_nothing(strategy: Strategy) -> None:
    move = Move.begun(["a"] * 8, ["b"] * 8, strategy)
    move = move.after(move.step({}), ["a"] * 8, Outcome(frozenset("a")))
    assert not move.waiting, "what has not flipped stays"


def test_those_with_most_rows_go_first() -> None:
    move = Move.begun(["a"] * 4, ["b"] * 4, batched(2))
    assert move.step({3: 9.0, 1: 5.0}).flip == {3, 1}
    assert Move.begun(["a"] * 4, ["b"] * 4, live()).step({3: 9.0, 1: 5.0}).fetch == (3, 1, 0, 2)


def test_live_flips_what_is_ready_and_replicated_waits_for_all() -> None:
    moving = Moving((2, 1, 0), frozenset({1}))
    assert live().step(moving).flip == {1}
    assert replicated().step(moving).flip == set()


def test_parallel_waits_until_both_places_have_made_the_same() -> None:
    move = Move.begun(["a"] * 2, ["b"] * 2, parallel())
    move = move.after(move.step({}), ["a"] * 2, Outcome(frozenset("ab"), (0, 1)))
    assert move.step({}).both == {0, 1}
    move = move.after(move.step({}), ["a"] * 2, Outcome(frozenset("ab"), (0, 1), agreed=[1]))
    assert (move.step({}).flip, move.differing) == (frozenset(), 1)
    move = move.after(move.step({}), ["a"] * 2, Outcome(frozenset("ab"), (0, 1), agreed=[0, 1]))
    assert (move.step({}).flip, move.differing) == ({0, 1}, 0)


def test_a_group_that_the_new_place_makes_something_else_of_stays() -> None:
    move = Move.begun(["a"] * 2, ["b"] * 2, parallel())
    move = move.after(move.step({}), ["a"] * 2, Outcome(frozenset("ab"), (0, 1)))
    for _ in range(5):
        assert move.waiting == {0, 1}
        move = move.after(move.step({}), ["a"] * 2, Outcome(frozenset("ab"), (0, 1), agreed=[1]))
    assert (move.stayed, move.left) == ({0}, ((0, "b"),)), "and the copy at the new place is given up"
    assert move.step({}).flip == {1}


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(PlanError, match="there is no strategy 'fast'; there are live, all_at_once"):
        named("fast")
