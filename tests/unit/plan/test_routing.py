"""Every group has one slot, and slots have about the same number of groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.balance import resized
from midstream.plan.routing import Routing


@given(st.integers(1, 300), st.data())
def test_an_even_routing_gives_every_group_one_slot_and_every_slot_its_share(groups: int, data: st.DataObject):
    slots = data.draw(st.integers(1, groups))
    routing = Routing.even(groups, slots)
    owned = [routing.groups_of(slot) for slot in range(slots)]
    assert sorted(group for part in owned for group in part) == list(range(groups))
    assert all(routing.owners[group] == slot for slot, part in enumerate(owned) for group in part)
    assert all(list(part) == sorted(part) for part in owned)
    sizes = Counter(routing.owners).values()
    assert len(routing.owners) == groups
    assert max(sizes) - min(sizes) <= 1


def test_the_same_numbers_give_the_same_routing():
    assert Routing.even(128, 7) == Routing.even(128, 7)


@pytest.mark.parametrize(("groups", "slots"), [(4, 5), (4, 0), (4, -1), (0, 1)])
def test_more_slots_than_groups_or_none_are_refused(groups: int, slots: int):
    with pytest.raises(
        ValueError, match=rf"slots must lie between 1 and the number of groups \({groups}\), not {slots}"
    ):
        Routing.even(groups, slots)


def test_a_slot_that_is_not_there_owns_nothing():
    assert Routing.even(4, 2).groups_of(2) == ()


@given(st.integers(1, 200), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_resizing_keeps_slots_even_and_moves_the_fewest_groups(groups: int, sizes: list[int]):
    routing = Routing.even(groups, 1)
    for slots in sizes:
        after = resized(routing, min(slots, groups))
        counts = [len(after.groups_of(slot)) for slot in range(after.slots)]
        assert sum(counts) == groups
        assert max(counts) - min(counts) <= 1
        before = sorted((len(routing.groups_of(slot)) for slot in range(after.slots)), reverse=True)
        least = groups - sum(map(min, before, sorted(counts, reverse=True)))  # the largest keep the largest shares
        assert len(routing.moved(after)) == least
        routing = after


@pytest.mark.parametrize("slots", [0, 9])
def test_there_are_as_many_slots_as_groups_at_most(slots: int):
    with pytest.raises(ValueError, match="slots must lie between 1 and the number of groups"):
        resized(Routing.even(8, 2), slots)
