"""Where groups go when an executor is drained, comes, or is gone when a modification is taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import PlanError
from midstream.placement.housing import Housing
from midstream.placement.request import Wish
from midstream.placement.standbys import wanted
from midstream.placement.strategies.live import Live

DRAIN_A = Wish(None, Live(), without="a")
RESCALE = Wish(None, Live())
REBALANCE = Wish(None, Live(), by_load=True)


def moved(before: Sequence[str], after: Sequence[str]) -> list[int]:
    return [group for group, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]


def housing(homes: Sequence[str], where: str, slots: int, standbys: int = 0, **known: dict[int, float]) -> Housing:
    return Housing("sums", tuple(homes), tuple(where), slots, copies=wanted(homes, where, standbys), **known)


def test_a_drain_with_standbys_moves_no_more_groups_than_the_executor_has():
    homes = ("a", "b") * 8
    after, told = housing(homes, "abc", 2, standbys=1).after([DRAIN_A], 2)
    assert moved(homes, after) == [group for group, home in enumerate(homes) if home == "a"]
    assert (Counter(after), told) == ({"b": 8, "c": 8}, "")


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 3))
def test_a_drain_moves_the_groups_of_its_executor_and_no_others(homes: list[str], slots: int, standbys: int):
    after, _ = housing(homes, "abcd", slots, standbys).after([DRAIN_A], slots)
    assert moved(homes, after) == [group for group, home in enumerate(homes) if home == "a"]
    held = Counter(home for home in homes if home != "a")
    took = Counter(after[group] for group, home in enumerate(homes) if home == "a")
    takers = {home for home in after if home != "a"}
    for taker in took:
        least = min(held[other] + took[other] for other in takers)
        assert held[taker] + took[taker] <= least + 1, "nobody took one while another had two less"


def test_groups_of_a_drained_executor_go_to_their_second_copies_as_far_as_these_are_not_too_many():
    homes = ("a",) * 6 + ("b",) * 5 + ("c",) * 5
    copies = {(group, "b" if group < 2 else "c") for group in range(6)}
    after, _ = Housing("sums", homes, tuple("abc"), 3, copies=copies).after([DRAIN_A], 3)
    assert after[:6].count("b") == 3, "8 of 16 for each"
    assert after[:2] == ("b", "b")
    assert after[2:6].count("c") == 3


def test_another_number_of_slots_moves_groups_to_executors_that_have_a_copy_of_them():
    homes = ("a", "b") * 6
    copies = {(group, "c") for group in (0, 3, 4, 7)}
    after, _ = Housing("sums", homes, tuple("abc"), 2, copies=copies).after([RESCALE], 3)
    assert Counter(after) == {"a": 4, "b": 4, "c": 4}
    assert len(moved(homes, after)) == 4


def test_taking_a_drain_back_leaves_executors_even_though_the_drained_one_is_gone():
    homes = ("a", "b") * 8
    now = tuple("c" if home == "a" or group < 7 else home for group, home in enumerate(homes))  # 11 have moved
    assert Counter(now) == {"c": 11, "b": 5}
    after, told = Housing("sums", now, ("b", "c"), 2, drained=frozenset("a")).back_to(homes, 2)
    assert Counter(after) == {"b": 8, "c": 8}
    assert moved(now, after) == [1, 3, 5], "home again, and no others"
    assert told == "executor a is gone: what it had of 'sums', 8 groups, is spread over the others"


def test_taking_a_drain_back_moves_nothing_because_slots_do_not_divide():
    homes = ("b", "c") * 8
    after, _ = Housing("sums", homes, tuple("bcbc"), 3).back_to(("a", *homes[1:]), 3)
    assert after == homes


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.data())
def test_what_is_taken_back_is_where_it_was_as_far_as_that_is_there(former: list[str], data: st.DataObject):
    now = data.draw(st.lists(st.sampled_from("bcd"), min_size=len(former), max_size=len(former)))
    after, told = Housing("sums", tuple(now), tuple("bcd"), 3).back_to(former, 3)
    assert [home for home, was in zip(after, former, strict=True) if was != "a"] == [h for h in former if h != "a"]
    assert "a" not in after
    assert ("executor a is gone" in told) == ("a" in former)


def test_an_executor_that_joins_gets_its_share_though_the_number_of_slots_is_fixed():
    homes, load = ("a", "b") * 8, dict.fromkeys(range(16), 10.0)
    after, told = housing(homes, "aabbcc", 4, load=load).after([REBALANCE], 4, is_fixed=True)
    assert (Counter(after)["c"], told) == (4, ""), "one slot of four"


def test_who_gets_nothing_is_told_why():
    homes, load = ("a", "b") * 8, dict.fromkeys(range(16), 10.0)
    after, told = housing(homes, "abc", 2, load=load).after([REBALANCE], 2, is_fixed=True)
    assert after == homes
    assert told == (
        "executor c gets no group of 'sums', which has 2 slots, as was asked for, on as many executors: "
        "ms.rescale('sums', slots=3) gives all 3 a share"
    )
    after, told = housing(homes, "abc", 3, load={0: 9.0, 1: 9.0}).after([REBALANCE], 3)
    assert (after, told) == (
        homes,
        "executor c gets no group of 'sums': its rows are of too few groups for 3 executors",
    )


def test_a_move_takes_groups_and_slots_by_their_names():
    homes = ("a", "b") * 4
    one = housing(homes, "abc", 2)
    after, _ = one.after([Wish("sums", Live(), to="c", groups=(0, 3))], 2)
    assert moved(homes, after) == [0, 3]
    after, _ = one.after([Wish("sums", Live(), to="c", slots=(1,))], 2)
    assert moved(homes, after) == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(None, Live(), without="d"), "there is no executor 'd' with a seat in this job; there are a, b"),
        (Wish("sums", Live(), to="d", groups=(0,)), "there is no executor 'd'"),
        (Wish("sums", Live(), to="b", groups=(8,)), "there are groups 0 to 7"),
        (Wish("sums", Live(), to="b", groups=(-1,)), "there are groups 0 to 7"),
        (Wish("sums", Live(), to="b", slots=(9,)), "job.slots lists its slots"),
    ],
)
def test_what_is_not_there_is_refused(wish: Wish, why: str):
    with pytest.raises(PlanError, match=why):
        housing(("a", "b") * 4, "ab", 2).after([wish], 2)


def test_the_last_executor_cannot_be_drained():
    with pytest.raises(PlanError, match="executor a is the only one"):
        housing(("a",) * 4, "a", 1).after([DRAIN_A], 1)
