"""Seats of executors: who serves, who gets which group; what asks Spark is tested on a cluster."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.seating import chairs, one_host


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abcd")), unique=True),
)
def test_a_group_gets_a_seat_of_its_executor_and_none_if_that_has_none(where: list[str], groups: list[tuple[int, str]]):
    found = chairs(where).by_seat(groups)
    seated = [(group, where[seat]) for seat, mine in found.items() for group in mine]
    assert Counter(seated) == Counter((group, place) for group, place in groups if place in where)
    assert all(found.values()), "seats without groups are not listed"


def test_the_groups_of_an_executor_are_spread_over_its_seats_and_stay_in_their_order():
    found = chairs("aba").by_seat([(group, "a") for group in (5, 4, 3, 2)])
    assert found == {2: (5, 3), 0: (4, 2)}


def test_executors_serve_that_have_seats_and_are_not_drained():
    assert chairs("aab").serving == {"a", "b"}
    assert chairs("aab", drained=frozenset("a")).serving == {"b"}


def test_a_seat_is_where_its_task_ran_last():
    seats = chairs("abc")
    seats.seen({0: "d", 2: "c"})
    assert seats.where == ("d", "b", "c")
    seats.seen({7: "e"})
    assert seats.where == ("d", "b", "c"), "there is no such seat"


def test_on_one_host_there_is_nothing_to_look_for():
    host = one_host(4)
    assert host.is_current(99)
    host.look_around(99)
    host.warm()
    host.close()
    assert (host.where, host.serving, host.cores) == ((), set(), 4)
