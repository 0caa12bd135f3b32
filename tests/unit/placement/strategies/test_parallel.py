"""Old and new place process beside each other until they agree; a group on which they do not agree stays."""

from __future__ import annotations

from midstream.placement.move import Move, MoveReport
from midstream.placement.strategies import parallel
from midstream.placement.strategies.contract import Moving, Step


def test_parallel_waits_until_both_places_have_made_the_same() -> None:
    move = Move.begun(["a"] * 2, ["b"] * 2, parallel())
    move = move.after(move.step({}), ["a"] * 2, MoveReport(frozenset("ab"), (0, 1)))
    assert move.step({}).both == {0, 1}
    move = move.after(move.step({}), ["a"] * 2, MoveReport(frozenset("ab"), (0, 1), agreed=[1]))
    assert (move.step({}).flip, move.differing) == (frozenset(), 1)
    move = move.after(move.step({}), ["a"] * 2, MoveReport(frozenset("ab"), (0, 1), agreed=[0, 1]))
    assert (move.step({}).flip, move.differing) == ({0, 1}, 0)


def test_a_group_that_the_new_place_makes_something_else_of_stays() -> None:
    move = Move.begun(["a"] * 2, ["b"] * 2, parallel())
    move = move.after(move.step({}), ["a"] * 2, MoveReport(frozenset("ab"), (0, 1)))
    for _ in range(5):
        assert move.waiting == {0, 1}
        move = move.after(move.step({}), ["a"] * 2, MoveReport(frozenset("ab"), (0, 1), agreed=[1]))
    assert (move.stayed, move.left) == ({0}, ((0, "b"),)), "and the copy at the new place is given up"
    assert move.step({}).flip == {1}


def test_what_is_ready_is_processed_twice_and_all_is_kept_following() -> None:
    assert parallel().step(Moving((2, 1, 0), frozenset({1}))) == Step(fetch=(2, 1, 0), both=frozenset({1}))
    agreed = Moving((2, 1, 0), frozenset({0, 1, 2}), frozenset({1, 2}))
    assert parallel().step(agreed) == Step(fetch=(2, 1, 0), both=frozenset({0, 1, 2}))
    assert parallel().step(Moving((2, 1), agreed=frozenset({1, 2}))) == Step(flip=frozenset({1, 2}))
