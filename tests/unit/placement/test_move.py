"""A move as a value: what it waits for, what an epoch has done for it, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.move import Move, MoveReport
from midstream.placement.strategies import all_at_once, live, on_demand, parallel
from midstream.placement.strategies.contract import Step

BOTH = frozenset("ab")
HOMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


@given(HOMES, st.data())
def test_groups_that_are_to_be_elsewhere_wait_and_no_others(homes: list[str], data: st.DataObject):
    target = data.draw(st.lists(st.sampled_from("abc"), min_size=len(homes), max_size=len(homes)))
    move = Move.begun(homes, target, live())
    expected = {group for group in range(len(homes)) if homes[group] != target[group]}
    assert (move.waiting, move.total, move.ready) == (expected, len(expected), set())
    assert not move.is_done, "an epoch must have been committed"
    assert move.after(move.step({}), homes, MoveReport(BOTH | {"c"})).is_done == (not expected)


def test_copies_that_stand_already_are_ready():
    move = Move.begun(["a", "a", "b"], ["b", "b", "b"], live(), {(0, "b"), (1, "c"), (2, "b")})
    assert move.ready == {0}


def test_the_busiest_come_first_and_the_step_is_the_same_however_often_it_is_asked():
    move = Move.begun(["a"] * 4, ["b"] * 4, live())
    assert move.step({2: 5.0, 0: 1.0}) == move.step({2: 5.0, 0: 1.0}) == Step(fetch=(2, 0, 1, 3))
    assert move.step({}).fetch == (0, 1, 2, 3)


def finished(move: Move, homes: Sequence[str], step: Step, **outcome: object) -> Move:
    return move.after(step, homes, MoveReport(BOTH, **outcome))  # type: ignore[arg-type]


def test_what_flips_leaves_a_copy_behind_which_is_dropped_in_the_epoch_after():
    move = Move.begun(["a", "a"], ["b", "b"], all_at_once())
    flipped = finished(move, ["a", "a"], move.step({}), bytes=7)
    assert (flipped.waiting, flipped.left, flipped.bytes, flipped.is_done) == (set(), ((0, "a"), (1, "a")), 7, False)
    assert flipped.step({}) == Step()
    dropped = finished(flipped, ["b", "b"], Step(), bytes=3)
    assert (dropped.left, dropped.bytes, dropped.is_done) == ((), 10, True)


def test_nothing_is_left_on_an_executor_that_is_gone():
    move = Move.begun(["a", "b"], ["b", "a"], all_at_once())
    after = move.after(move.step({}), ["a", "b"], MoveReport(frozenset("b")))
    assert after.left == ((1, "b"),)


def test_groups_whose_target_is_gone_stay_where_they_are():
    move = Move.begun(["a", "a"], ["b", "c"], live())
    after = move.after(move.step({}), ["a", "a"], MoveReport(BOTH, fetched=[0]))
    assert (after.waiting, after.ready, after.left) == ({0}, {0}, ())


def test_a_copy_is_ready_as_long_as_the_last_epoch_has_brought_it_up():
    move = Move.begun(["a", "a"], ["b", "b"], live())
    ready = finished(move, ["a", "a"], Step(fetch=(0, 1)), fetched=[0, 1])
    assert ready.ready == {0, 1}
    assert finished(ready, ["a", "a"], Step(fetch=(0, 1)), fetched=[1]).ready == {1}


def test_groups_that_are_read_where_they_are_stored_keep_a_move_going_where_nothing_is_copied_first():
    for strategy, expected in ((on_demand(), 3), (all_at_once(), 0)):
        move = Move.begun(["a"], ["b"], strategy)
        after = finished(finished(move, ["a"], move.step({})), ["b"], Step(), in_place=3)
        assert (after.in_place, after.is_done) == (expected, not expected)


def test_two_places_are_given_five_epochs_to_agree():
    move = Move.begun(["a"] * 2, ["b"] * 2, parallel())
    twice = Step(both=frozenset({0, 1}))
    for tried in range(1, 5):
        move = finished(move, ["a"] * 2, twice, fetched=(0, 1), agreed=[0])
        assert (move.tried, move.differing, move.stayed) == (tried, 1, set())
    agreeing = finished(move, ["a"] * 2, twice, fetched=(0, 1), agreed=[0, 1])
    assert (agreeing.tried, agreeing.differing, agreeing.agreed) == (0, 0, {0, 1}), "in a row, that is"
    given_up = finished(move, ["a"] * 2, twice, fetched=(0, 1), agreed=[0])
    assert (given_up.stayed, given_up.waiting, given_up.left) == ({1}, {0}, ((1, "b"),))
