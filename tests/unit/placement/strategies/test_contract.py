"""What every strategy promises: all groups come to their new place, each flips once, and nothing else moves."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from midstream.errors import PlanError
from midstream.placement.move import Move, MoveReport
from midstream.placement.strategies import (
    NAMES,
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
        move = move.after(step, before, MoveReport(frozenset("abc"), fetched, step.both))
        if move.is_done:
            break
    assert homes == TARGET
    assert flipped == dict.fromkeys(range(10, 16), 1)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_what_the_old_place_has_is_given_up_in_the_epoch_after(strategy: Strategy) -> None:
    move = Move.begun(["a", "a"], ["a", "b"], strategy)
    for _ in range(4):
        step = move.step({})
        move = move.after(step, ["a", "a"], MoveReport(frozenset("ab"), step.fetch, step.both))
        if step.flip:
            break
    assert move.left == ((1, "a"),)
    assert not move.is_done
    assert move.after(move.step({}), ["a", "b"], MoveReport(frozenset("ab"))).is_done


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_target_that_is_lost_gets_nothing(strategy: Strategy) -> None:
    move = Move.begun(["a"] * 8, ["b"] * 8, strategy)
    move = move.after(move.step({}), ["a"] * 8, MoveReport(frozenset("a")))
    assert not move.waiting, "what has not flipped stays"


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(PlanError, match="there is no strategy 'fast'; there are live, all_at_once"):
        named("fast")


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_is_known_by_its_name_and_given_as_a_value(name: str) -> None:
    strategy = named(name)
    assert named(strategy) is strategy
    assert type(strategy) in {type(other) for other in STRATEGIES}
    assert str(strategy).lower().startswith(name.replace("_", ""))


def test_all_strategies_are_tried_here() -> None:
    assert {type(named(name)) for name in NAMES} == {type(strategy) for strategy in STRATEGIES}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_strategy_is_plain_data(strategy: Strategy) -> None:
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    assert len({strategy, named(strategy)}) == 1
