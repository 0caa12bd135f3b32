"""A list or map of the key at hand is read and written as one of Python's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.state.keyed import GroupState
from tests.support.group_states import at_clock, entries, kept

# --- lists ----------------------------------------------------------------------------------------------------------


def test_a_list_is_read_like_a_list(state: GroupState):
    view = state.read("items")
    assert not view
    view.append(1)
    view.extend(iter([2, None, 4]))
    assert list(view) == [1, 2, None, 4]
    assert (len(view), view[0], view[-1], view[1:3]) == (4, 1, 4, [2, None])
    assert view
    assert view == [1, 2, None, 4] == view
    assert view != [1, 2]
    assert repr(view) == "[1, 2, None, 4]"
    with pytest.raises(IndexError):
        view[4]


def test_a_list_may_be_assigned_to_itself_and_changed_while_it_is_read(state: GroupState):
    state.write("items", [3, 1, 2])
    state.write("items", sorted(state.read("items")))
    assert state.read("items") == [1, 2, 3]
    state.write("items", state.read("items"))
    assert state.read("items") == [1, 2, 3]
    for item in state.read("items"):
        state.read("items").append(item * 10)
    assert state.read("items") == [1, 2, 3, 10, 20, 30]


def test_a_list_that_was_cleared_begins_anew(state: GroupState):
    state.write("items", range(5))
    state.read("items").clear()
    assert state.read("items") == []
    state.read("items").append(9)
    assert state.read("items") == [9]


def test_a_list_keeps_its_order_beyond_one_byte_of_length(state: GroupState):
    state.write("items", range(700))
    state.release()
    state.bind(b"key")
    assert state.read("items") == list(range(700))


# --- maps -----------------------------------------------------------------------------------------------------------


def test_a_map_is_read_and_written_like_a_dictionary(state: GroupState):
    view = state.read("seen")
    view["b"], view["a"] = 2, 1
    view.update({"c": 3}, d=None)
    assert dict(view) == {"a": 1, "b": 2, "c": 3, "d": None} == view
    assert (len(view), "a" in view, "x" in view, view.get("x", 9), view["d"]) == (4, True, False, 9, None)
    assert view.pop("a") == 1
    assert view.pop("a", None) is None
    assert view.setdefault("b", 8) == 2
    assert view.setdefault("e", 5) == 5
    del view["d"]
    assert sorted(view.items()) == [("b", 2), ("c", 3), ("e", 5)]
    assert repr(state.read("seen")) == repr(dict(view))
    for change in (lambda: view["x"], lambda: view.pop("x"), lambda: view.__delitem__("x")):
        with pytest.raises(KeyError):
            change()
    view.clear()
    assert dict(view) == {}


def test_a_map_may_be_changed_while_it_is_read_and_assigned_to_itself(state: GroupState):
    state.write("seen", {"a": 1, "b": 2, "c": 3})
    for name in state.read("seen"):
        if name != "b":
            del state.read("seen")[name]
    assert state.read("seen") == {"b": 2}
    state.write("seen", state.read("seen"))
    assert state.read("seen") == {"b": 2}


def test_a_map_comes_in_the_same_order_whatever_the_order_of_writing(state: GroupState):
    names = ["b", "a", "zz", "c", ""]
    state.write("seen", dict.fromkeys(names, 1))
    once = list(state.read("seen"))
    state.write("seen", dict.fromkeys(reversed(names), 1))
    assert list(state.read("seen")) == once


# --- any sequence of steps ------------------------------------------------------------------------------------------

LIST_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(-9, 9) | st.none()),
        st.tuples(st.just("extend"), st.lists(st.integers(-9, 9), max_size=3)),
        st.tuples(st.just("clear")),
        st.tuples(st.just("replace"), st.lists(st.integers(-9, 9), max_size=3)),
        st.tuples(st.just("again")),
    )
)


@given(LIST_STEPS)
def test_a_list_holds_what_a_list_would(steps: list[Any]):
    state, model = at_clock(0), list[Any]()
    state.bind(b"key")
    for step, *arguments in steps:
        if step == "again":  # the key comes again, later in the epoch
            state.release()
            state.bind(b"key")
        elif step == "replace":
            state.read("items").replace(*arguments)
            model = list(*arguments)
        else:
            getattr(state.read("items"), step)(*arguments)
            getattr(model, step)(*arguments)
        view = state.read("items")
        assert (list(view), len(view), bool(view), repr(view)) == (model, len(model), bool(model), repr(model))
        assert view[-2:] == model[-2:]
    assert bool(entries(kept(state))) == bool(model)


KEYS = st.sampled_from(["", "a", "b", "ab", "ä"])
MAP_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("__setitem__"), KEYS, st.integers(-9, 9) | st.none()),
        st.tuples(st.just("pop"), KEYS, st.none()),
        st.tuples(st.just("setdefault"), KEYS, st.integers(-9, 9)),
        st.tuples(st.just("discard"), KEYS),
        st.tuples(st.just("clear")),
        st.tuples(st.just("replace"), st.dictionaries(KEYS, st.integers(-9, 9), max_size=3)),
    )
)


@given(MAP_STEPS)
def test_a_map_holds_what_a_dictionary_would(steps: list[Any]):
    state, model = at_clock(0), dict[str, Any]()
    state.bind(b"key")
    view = state.read("seen")
    for step, *arguments in steps:
        found = getattr(view, step)(*arguments)
        if step == "replace":
            model = dict(*arguments)
        elif step == "discard":
            model.pop(arguments[0], None)
        else:
            assert found == getattr(model, step)(*arguments)
        assert dict(view) == model
        assert (len(view), {*view}, {*view.values()}) == (len(model), {*model}, {*model.values()})
        assert [key in view for key in ("", "a", "x")] == [key in model for key in ("", "a", "x")]
    assert len(entries(kept(state))) == len(model)


@pytest.mark.parametrize("key", [None, 5, b"a"])
def test_what_cannot_be_a_key_of_a_map_is_refused_whatever_is_done_with_it(state: GroupState, key: Any):
    view = state.read("seen")
    for ask in (lambda: view[key], lambda: view.__setitem__(key, 1), lambda: view.discard(key), lambda: key in view):
        with pytest.raises(StateError, match="a key of state 'seen' of operator 'sums'"):
            ask()
    assert entries(kept(state)) == []


def test_views_of_a_list_are_compared_by_what_they_hold_and_cannot_be_keys(state: GroupState):
    state.write("items", [1, 2])
    state.write("recent", (1, 2))
    assert state.read("items") == state.read("recent") == (1, 2)
    assert state.read("items") != {1, 2}
    with pytest.raises(TypeError, match="unhashable"):
        hash(state.read("items"))


def test_what_has_expired_is_neither_counted_nor_shown_and_may_come_again():
    first = at_clock(0)
    first.bind(b"key")
    first.write("hot", {1: "one", 2: "two"})
    first.write("recent", [1, 2])
    later = at_clock(80, kept(first))
    later.bind(b"key")
    hot, recent = later.read("hot"), later.read("recent")
    assert (len(hot), list(hot), 1 in hot, hot.get(1), len(recent), bool(recent)) == (0, [], False, None, 0, False)
    hot[1] = "again"
    recent.append(3)
    assert (dict(hot), list(recent)) == ({1: "again"}, [3])
