"""The state of the key at hand behaves as plain Python values, lists and dictionaries would."""

from __future__ import annotations

from typing import Any

import pytest

from midstream.errors import StateError
from midstream.state.keyed import GroupState
from tests.support.group_states import at_clock, entries, kept

# --- values ---------------------------------------------------------------------------------------------------------


def test_a_value_that_was_never_written_is_its_default(state: GroupState):
    assert (state.read("plain"), state.read("brief")) == (7, None)


def test_a_value_that_is_set_to_none_is_its_default_again(state: GroupState):
    state.write("plain", 1)
    assert state.read("plain") == 1
    state.write("plain", None)
    assert state.read("plain") == 7


def test_a_key_that_was_only_read_leaves_nothing(state: GroupState):
    assert (state.read("plain"), list(state.read("items")), dict(state.read("seen"))) == (7, [], {})
    assert entries(kept(state)) == []


def test_a_key_whose_state_is_all_removed_leaves_nothing(state: GroupState):
    for name, value in {"plain": 1, "items": [1, 2], "seen": {"a": 1}}.items():
        state.write(name, value)
        state.write(name, None)
    assert entries(kept(state)) == []


def test_keys_do_not_see_each_other():
    state = at_clock(0)
    for number, key in enumerate([b"", b"a", b"ab", b"\xff", b"\xff\xff"]):
        state.bind(key)
        assert (state.read("plain"), state.read("items") == [], dict(state.read("seen"))) == (7, True, {})
        state.write("plain", number)
        state.write("items", [number] * number)
        state.write("seen", {str(number): number})
        state.release()
    for number, key in enumerate([b"", b"a", b"ab", b"\xff", b"\xff\xff"]):
        state.bind(key)
        assert state.read("plain") == number
        assert state.read("items") == [number] * number
        assert state.read("seen") == {str(number): number}


@pytest.mark.parametrize(
    ("name", "value"), [("plain", "1"), ("items", [1, "2"]), ("seen", {1: 1}), ("seen", {"a": "b"}), ("hot", {1: 2})]
)
def test_a_value_of_another_type_is_refused_with_the_name_of_state_and_operator(
    state: GroupState, name: str, value: Any
):
    with pytest.raises(StateError, match=f"state '{name}' of operator 'sums' is declared as"):
        state.write(name, value)
