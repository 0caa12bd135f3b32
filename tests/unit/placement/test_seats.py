"""Seats of executors: every group is served at its home, and seats at one home have about the same to do."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.housing import Dealing, seated, shares

WHERE = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)


@given(WHERE, st.integers(1, 8), st.lists(st.sampled_from("abc"), max_size=30))
def test_as_many_seats_are_lent_as_there_are_slots_spread_over_the_executors(
    where: list[str], slots: int, homes: list[str]
):
    lent, seats = shares(where, slots, homes), Counter(where)
    assert sum(lent.values()) == min(slots, len(where))
    assert all(0 < lent[place] <= seats[place] for place in lent)
    assert len(lent) == min(slots, len(seats)), "all executors, as far as there are slots"


@given(WHERE, st.integers(1, 8), st.integers(1, 60))
def test_every_group_sits_at_its_home(where: list[str], slots: int, groups: int):
    homes = Dealing(where, slots).by_number(("",) * groups)
    routing = seated(homes, where, slots)
    assert [where[seat] for seat in routing.owners] == list(homes)
    for place in set(homes):
        sizes = Counter(seat for seat in routing.owners if where[seat] == place)
        assert max(sizes.values()) - min(sizes.values()) <= 1


def test_an_executor_that_is_drained_lends_nothing():
    homes = Dealing(["a", "b", "c"], 2, without=frozenset("a")).by_number(["a", "b"] * 8)
    assert Counter(homes) == {"b": 8, "c": 8}
    assert [home for home, before in zip(homes, ["a", "b"] * 8, strict=True) if before == "b"] == ["b"] * 8


def test_groups_of_a_lost_executor_are_served_somewhere():
    assert set(seated(["lost"] * 4, ["a", "b"], 2).owners) == {0, 1}
