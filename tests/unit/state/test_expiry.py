"""What has outlived its time is not seen any more at that moment, and is deleted soon after."""

from __future__ import annotations

from typing import Any

import pytest

from midstream.state.expiry import expire
from tests.support.edits import Edits
from tests.support.group_states import TTL, VERSION, at_clock, entries, kept


@pytest.mark.parametrize(
    ("name", "value", "nothing"),
    [("brief", "x", None), ("recent", [1, 2], []), ("hot", {1: "x"}, {})],
)
def test_what_has_outlived_its_time_is_gone_at_that_moment_and_deleted_soon_after(name: str, value: Any, nothing: Any):
    first = at_clock(1000)
    first.bind(b"key")
    first.write(name, value)
    store, expiry = kept(first), 1000 + TTL[name]

    def seen_at(now: int) -> Any:
        state = at_clock(now, store)
        state.bind(b"key")
        return state.read(name)

    assert seen_at(expiry - 1) == value
    assert seen_at(expiry) == nothing
    deadline = first.next_deadlines()[1]
    assert deadline is not None
    assert expiry <= deadline <= expiry + TTL[name] // 8
    late = at_clock(deadline, store)
    expire(late)
    store.apply([Edits(late.changes)], VERSION)
    assert entries(store) == []
    assert late.next_deadlines() == (None, None)


def test_what_is_written_again_lives_on():
    first = at_clock(0)
    first.bind(b"key")
    first.write("brief", "one")
    first.write("hot", {1: "one", 2: "two"})
    store = kept(first)
    again = at_clock(60, store)
    again.bind(b"key")
    again.write("brief", "three")
    again.read("hot")[1] = "four"
    again.release()
    store.apply([Edits(again.changes)], VERSION)
    later = at_clock(110, store)
    expire(later)
    later.bind(b"key")
    assert later.read("brief") == "three"
    assert later.read("hot") == {1: "four"}
