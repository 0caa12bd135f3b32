"""Changes over what is stored: read as one, found together where they are walked together, and taken back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.state.entries import field_prefix
from midstream.state.keyed import ChangedEntries
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits

TIMERS = b"\2"
LIST, OTHER = field_prefix(0, b"key"), field_prefix(0, b"key2")  # of two keys, one of which begins like the other
STORED = {TIMERS + b"1": b"t1", TIMERS + b"4": b"t4", LIST + b"a": b"A", LIST + b"c": b"C", OTHER + b"a": b"other"}


@pytest.fixture
def entries() -> Iterator[ChangedEntries]:
    """Give the entries of a group in which some things are stored."""
    with MemoryStore(STORED).reader() as reader:
        yield ChangedEntries(reader)


def walked(entries: ChangedEntries, prefix: bytes) -> dict[bytes, bytes]:
    return dict(entries.scan(prefix, prefix + b"\xff"))


def test_a_change_lies_over_what_is_stored_and_the_store_is_left_alone(entries: ChangedEntries):
    entries.put(LIST + b"a", b"newer")
    entries.put(LIST + b"b", b"B")
    entries.put(LIST + b"c", None)
    assert walked(entries, LIST) == {LIST + b"a": b"newer", LIST + b"b": b"B"}
    assert walked(entries, OTHER) == {OTHER + b"a": b"other"}
    asked = [LIST + b"c", LIST + b"b", OTHER + b"a", LIST + b"x"]
    assert entries.get_many(asked) == [entries.get(entry) for entry in asked] == [None, b"B", b"other", None]
    assert entries.changes == {LIST + b"a": b"newer", LIST + b"b": b"B", LIST + b"c": None}


def test_what_was_looked_up_ahead_is_not_read_again(entries: ChangedEntries):
    entries.look_up([LIST + b"a", LIST + b"x"])
    with MemoryStore().reader() as empty:
        entries.read_from(empty)
        assert [entries.get(LIST + name) for name in (b"a", b"x", b"c")] == [b"A", None, None]


def test_the_first_entry_of_a_kind_is_the_first_that_is_left(entries: ChangedEntries):
    stop = b"\3"
    assert entries.first(TIMERS, TIMERS, stop) == TIMERS + b"1"
    entries.put(TIMERS + b"1", None)
    assert entries.first(TIMERS, TIMERS, stop) == TIMERS + b"4"
    entries.put(TIMERS + b"2", b"t2")
    assert entries.first(TIMERS, TIMERS, stop) == TIMERS + b"2"
    entries.remove_for_good(TIMERS, [TIMERS + b"2", TIMERS + b"4"])
    assert entries.first(TIMERS, TIMERS, stop) is None


def test_what_was_removed_for_good_is_not_taken_back(entries: ChangedEntries):
    entries.mark()
    entries.put(TIMERS + b"2", b"t2")
    entries.remove_for_good(TIMERS, [TIMERS + b"1"])
    entries.take_back()
    assert walked(entries, TIMERS) == {TIMERS + b"4": b"t4"}


names = st.sampled_from([prefix + rest for prefix in (LIST, OTHER, TIMERS) for rest in (b"1", b"a", b"b", b"c")])
edits = st.lists(st.tuples(names, st.none() | st.binary(max_size=2)), max_size=8)


@given(before=edits, since=edits)
def test_taking_back_leaves_what_there_was_at_the_mark(
    before: list[tuple[bytes, bytes | None]], since: list[tuple[bytes, bytes | None]]
):
    with MemoryStore(STORED).reader() as reader:
        entries = ChangedEntries(reader)
        for entry, value in before:
            entries.put(entry, value)
        entries.mark()
        for entry, value in since:
            entries.put(entry, value)
        assert _all(entries) == Edits(dict(since)).applied_to(Edits(dict(before)).applied_to(STORED))
        entries.take_back()
        assert _all(entries) == Edits(dict(before)).applied_to(STORED)
        assert entries.changes == dict(before)


def _all(entries: ChangedEntries) -> dict[bytes, bytes]:
    return {entry: value for prefix in (TIMERS, LIST, OTHER) for entry, value in walked(entries, prefix).items()}
