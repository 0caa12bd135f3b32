"""Who may stay connected: a newcomer always, and of the others those who harm the least."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.ingest.connections import Connections


class Peer:
    """A peer as far as connections look at it."""

    def __init__(self, address: str = "a", age: float = 1.0) -> None:
        self.address, self.busy, self.dismissed = address, False, ""
        self._age = age

    def age(self) -> float:
        return self._age

    def dismiss(self, reason: str) -> None:
        assert not self.dismissed, "told once"
        self.dismissed = reason


def connections(most: int = 3, memory: int = 100, *peers: Peer) -> Any:
    found: Any = Connections(most, 60.0, memory)
    for peer in peers:
        found.add(peer)
    return found


def gone(*peers: Peer) -> list[bool]:
    return [bool(peer.dismissed) for peer in peers]


def test_a_newcomer_is_let_in_and_the_one_for_which_nothing_happened_the_longest_goes() -> None:
    one, two, three, new = peers = [Peer() for _ in range(4)]
    all = connections(3, 100, one, two, three)
    all.moved(one, stored=False)
    all.add(new)
    assert gone(*peers) == [False, True, False, False]
    assert list(all) == [one, three, new]
    assert two.dismissed == "there are too many connections, and this one does the least"


def test_who_has_stored_a_record_stays_longer_than_who_has_not() -> None:
    old, idle, new = Peer(), Peer(), Peer()
    all = connections(2, 100, old, idle)
    all.moved(old, stored=True)
    all.moved(idle, stored=False)
    all.add(new)
    assert gone(old, idle, new) == [False, True, False]
    all.moved(old, stored=False)
    all.add(Peer())
    assert gone(old, new) == [False, True], "once proven is proven"


def test_one_goes_of_the_address_that_has_the_most() -> None:
    _, *many = peers = [Peer("alone"), Peer("many"), Peer("many")]
    all = connections(3, 100, *peers)
    for peer in many:
        all.moved(peer, stored=True)
    all.add(Peer("new"))
    assert gone(*peers) == [False, True, False], "though it has done more than the other address"


def test_who_is_being_served_does_not_go() -> None:
    one, two, new = Peer(), Peer(), Peer()
    all = connections(2, 100, one, two)
    one.busy = True
    all.add(new)
    assert gone(one, two, new) == [False, True, False]
    new.busy = True
    last = Peer()
    all.add(last)
    assert gone(one, new, last) == [False] * 3
    assert len(all) == 3, "all are being served"


def test_too_much_that_is_not_finished_costs_who_has_held_the_most_for_the_longest() -> None:
    small_old, large_new, large_old = Peer(age=90), Peer(age=1), Peer(age=50)
    all = connections(9, 100, small_old, large_new, large_old)
    for peer, size in ((small_old, 10), (large_new, 45), (large_old, 45)):
        all.hold(peer, size)
    assert gone(small_old, large_new, large_old) == [False] * 3, "just as much as may be"
    all.hold(large_new, 46)
    assert gone(small_old, large_new, large_old) == [False, False, True]
    assert large_old.dismissed == "too much is under way, and this is the slowest"
    assert len(all) == 2


def test_what_is_finished_is_held_no_more() -> None:
    one, two = Peer(), Peer()
    all = connections(9, 100, one, two)
    for _ in range(5):
        all.hold(one, 90)
        all.hold(one, 0)
    all.hold(two, 90)
    all.remove(two)
    all.hold(one, 100)
    assert gone(one, two) == [False, False]


def test_who_is_being_served_holds_what_it_must() -> None:
    one, two = Peer(), Peer()
    all = connections(9, 100, one, two)
    one.busy = two.busy = True
    all.hold(one, 80)
    all.hold(two, 80)
    assert gone(one, two) == [False, False]


def test_who_is_gone_is_not_counted_again() -> None:
    one = Peer()
    all = connections(1, 100, one)
    for _ in range(2):
        all.remove(one)
    all.moved(one, stored=True)
    all.hold(one, 1_000)
    assert (len(all), list(all), one.dismissed) == (0, [], "")
    all.add(Peer())
    assert len(all) == 1


Steps = list[tuple[str, int, int]]


@pytest.mark.parametrize("most", [1, 3])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "moved", "stored", "hold", "busy", "idle"]),
            st.integers(0, 9),
            st.integers(0, 60),
        )
    )
)
def test_they_are_never_too_many_nor_hold_too_much_unless_all_are_being_served(most: int, steps: Steps) -> None:
    all, peers, held = connections(most), [Peer("abc"[i % 3], age=i) for i in range(10)], dict.fromkeys(range(10), 0)
    there, ever_busy = set[int](), False
    for step, number, size in steps:
        peer = peers[number]
        if step == "add" and number not in there and not peer.dismissed:
            all.add(peer)
            there.add(number)
            held[number] = 0
        elif step == "remove":
            all.remove(peer)
            there.discard(number)
        elif step in ("moved", "stored"):
            all.moved(peer, stored=step == "stored")
        elif step == "hold":
            all.hold(peer, size)
            held[number] = size
        elif step in ("busy", "idle"):
            peer.busy = step == "busy"
            ever_busy |= peer.busy
        there = {each for each in there if not peers[each].dismissed}
        assert {*all} == {peers[each] for each in there}
        assert ever_busy or len(all) <= most
        if step == "hold" and number in there:
            free = sum(held[each] for each in there if not peers[each].busy)
            assert sum(held[each] for each in there) <= 100 or free == 0
