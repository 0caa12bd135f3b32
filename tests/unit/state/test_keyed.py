"""The state of the key at hand behaves as plain Python values, lists, dictionaries and sets of timers would."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import StateError
from midstream.plan.plan import StateField
from midstream.state import entries as forms
from midstream.state.entries import Form
from midstream.state.keyed import GroupState
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.memory import MemoryStore
from midstream.state.timers import Timer
from midstream.state.values import moment_of
from tests.support.edits import Edits

FIELDS = (
    StateField(name="plain", kind="value", type="bigint", default=7),
    StateField(name="brief", kind="value", type="string", ttl=100),
    StateField(name="items", kind="list", type="bigint"),
    StateField(name="recent", kind="list", type="bigint", ttl=50),
    StateField(name="seen", kind="map", key_type="string", type="bigint"),
    StateField(name="hot", kind="map", key_type="bigint", type="string", ttl=80),
)
TTL = {field.name: field.ttl for field in FIELDS}
TYPES = {
    "plain": pa.int64(),
    "brief": pa.string(),
    "items": pa.int64(),
    "recent": pa.int64(),
    "seen": pa.int64(),
    "seen key": pa.string(),
    "hot": pa.string(),
    "hot key": pa.int64(),
}
FORM = Form("sums", FIELDS, TYPES)
VERSION = Version("job", 1, "c")


READERS = ExitStack()  # that stay open


def at_clock(now: int, store: MemoryStore | None = None) -> GroupState:
    return GroupState(FORM, READERS.enter_context((store or MemoryStore()).reader()), now)


@pytest.fixture
def state() -> GroupState:
    """Give the state of an empty group at the clock 1000, bound to a key."""
    state = at_clock(1000)
    state.bind(b"key")
    return state


def kept(state: GroupState) -> MemoryStore:
    """The store after the epoch, where it was empty before."""
    state.release()
    store = MemoryStore()
    store.apply([Edits(state.changes)], VERSION)
    return store


def entries(store: MemoryStore) -> list[bytes]:
    with store.reader() as reader:
        return [entry for entry, _ in reader.scan(FIRST, LAST)]


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


# --- timers ---------------------------------------------------------------------------------------------------------


def set_timers(state: GroupState, *timers: tuple[bytes, str, int]) -> None:
    for key, kind, at in timers:
        state.bind(key)
        state.set(Timer(kind, moment_of(at)))
        state.release()


def test_timers_are_due_by_time_then_kind_then_key():
    state = at_clock(50)
    set_timers(
        state,
        (b"b", "processing_time", 10),
        (b"b", "event_time", 10),
        (b"a", "processing_time", 10),
        (b"z", "event_time", -5),
        (b"a", "event_time", 20),
        (b"a", "event_time", 21),
        (b"a", "processing_time", 51),
    )
    assert state.take_due(20) == [
        (b"z", Timer("event_time", moment_of(-5))),
        (b"b", Timer("event_time", moment_of(10))),
        (b"a", Timer("processing_time", moment_of(10))),
        (b"b", Timer("processing_time", moment_of(10))),
        (b"a", Timer("event_time", moment_of(20))),
    ]
    assert state.take_due(20) == []
    assert state.next_deadlines() == (21, 51)


def test_without_a_watermark_no_event_timer_is_due():
    state = at_clock(50)
    set_timers(state, (b"a", "event_time", -(10**15)), (b"a", "processing_time", 50))
    assert state.take_due(None) == [(b"a", Timer("processing_time", moment_of(50)))]
    assert state.next_deadlines() == (-(10**15), None)


def test_a_timer_set_twice_fires_once_and_a_cleared_one_never():
    state = at_clock(50)
    set_timers(
        state, (b"a", "event_time", 1), (b"a", "event_time", 1), (b"a", "event_time", 2), (b"b", "event_time", 2)
    )
    state.bind(b"a")
    state.clear(Timer("event_time", moment_of(2)))
    state.clear(Timer("event_time", moment_of(3)))
    assert [(key, timer.at) for key, timer in state.take_due(9)] == [(b"a", moment_of(1)), (b"b", moment_of(2))]
    assert state.next_deadlines() == (None, None)


def test_a_timer_without_a_zone_is_in_utc(state: GroupState):
    state.set(Timer("event_time", dt.datetime(1970, 1, 1, 0, 0, 1)))
    assert state.next_deadlines() == (1_000_000, None)


def test_a_timer_needs_a_moment(state: GroupState):
    with pytest.raises(TypeError, match="a timer needs a datetime, not 5"):
        state.set(Timer("event_time", 5))  # type: ignore[arg-type]


@given(st.lists(st.integers(-(2**62), 2**62), max_size=10))
def test_deadlines_are_stored_in_the_order_of_time(moments: list[int]):
    encoded = [b"\2" + forms.deadline_bytes(moment) for moment in moments]
    assert [forms.deadline_of(entry) for entry in sorted(encoded)] == sorted(moments)


@given(st.integers(0, 200), st.binary(max_size=5), st.binary(max_size=5))
def test_an_entry_of_a_field_is_taken_apart_as_it_was_put_together(field: int, key: bytes, rest: bytes):
    prefix = forms.field_prefix(field, key)
    assert forms.split_field_entry(prefix + rest) == (field, key, rest)
    assert prefix <= prefix + rest < forms.after(prefix)


# --- expiry ---------------------------------------------------------------------------------------------------------


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
    late.expire()
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
    later.expire()
    later.bind(b"key")
    assert later.read("brief") == "three"
    assert later.read("hot") == {1: "four"}
