"""State is copied in the order given until the budget is spent; what is here already costs nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from midstream.state.budget import Budget
from midstream.state.cache import Cache
from midstream.state.copying import complete, fetch, seconds_to_look_up
from midstream.state.stores.lmdb import PAGE
from tests.support.far_store import Clock
from tests.support.histories import GROUPS, History, contents

A = b"\1a"
ALL = range(GROUPS)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Give a job with a snapshot of two of its three groups, of which one has changed since."""
    history = History(tmp_path)
    history.epoch({0: {A: b"0"}, 1: {A: b"1"}})
    history.epoch({}, snapshots=(0, 1))
    history.epoch({1: {A: b"2"}})
    return history


def lazy(history: History, host: str = "new", *, bytes: int = 1 << 30, seconds: float = 60.0) -> Cache:
    cache = history.cache(host)
    cache.lazy, cache.budget = True, Budget(bytes, seconds)
    return cache


def whole(cache: Cache) -> list[int]:
    return [group for group in ALL if cache.copies.is_whole(group)]


# --- complete -------------------------------------------------------------------------------------------------------


def test_all_groups_that_have_state_are_copied_within_the_budget(history: History):
    cache = lazy(history)
    assert complete(cache, ALL) == 0
    assert whole(cache) == [0, 1], "group 2 never changed"
    assert [contents(cache.bring(group)) for group in ALL] == [{A: b"0"}, {A: b"2"}, {}]
    assert cache.budget.copied == sum(history.snapshot_of(group).size for group in (0, 1))


@pytest.mark.parametrize(("order", "first"), [([0, 1], 0), ([1, 0], 1), ([2, 1, 0], 1)])
def test_the_first_comes_first_and_the_others_are_counted(history: History, order: list[int], first: int):
    cache = lazy(history, bytes=1)
    assert complete(cache, order) == 1
    assert whole(cache) == [first]


def test_with_nothing_to_spend_nothing_is_copied(history: History):
    for cache in (lazy(history, bytes=0), lazy(history, seconds=0)):
        assert complete(cache, ALL) == 2
        assert whole(cache) == []


def test_a_group_that_is_read_in_place_is_copied_and_one_that_is_here_is_not_again(history: History):
    cache = lazy(history)
    cache.bring(0)
    assert (cache.copies.is_here(0), cache.copies.is_whole(0)) == (True, False)
    assert complete(cache, [0]) == 0
    assert cache.copies.is_whole(0)
    again = lazy(history, bytes=1)
    assert complete(again, [0, 1]) == 0
    assert again.budget.copied == history.snapshot_of(1).size, "what is here has cost nothing"


# --- fetch ----------------------------------------------------------------------------------------------------------


def test_groups_are_fetched_until_the_budget_is_spent(history: History):
    assert fetch(lazy(history, "one"), [1, 0]) == [1, 0]
    assert fetch(lazy(history, "two", bytes=1), [1, 0]) == [1]
    assert fetch(lazy(history, "three", bytes=0), [1, 0]) == []


def test_a_group_that_is_here_follows_along_whatever_is_spent(history: History):
    assert fetch(lazy(history), [1]) == [1]
    history.epoch({1: {A: b"3"}})
    cache = lazy(history, bytes=0)
    assert fetch(cache, [0, 1]) == [1]
    assert contents(cache.bring(1)) == {A: b"3"}
    assert cache.budget.copied == 0


# --- how long it would take -----------------------------------------------------------------------------------------

SPEED = 1 << 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the clock by which a store that is far away is waited for."""
    return Clock.put_in_place(monkeypatch)


@pytest.fixture
def slow(history: History, clock: Clock) -> History:
    """Give the same job over a store that gives a megabyte a second."""
    return history


def far(history: History) -> Cache:
    near = lazy(history)
    return Cache(replace(near.head, bytes_per_second=SPEED), near.lazy, near.budget)


def test_a_snapshot_that_was_not_opened_is_read_as_a_whole(slow: History):
    cache = far(slow)
    expected = sum(slow.snapshot_of(group).size for group in (0, 1)) / SPEED
    assert seconds_to_look_up(cache, {0: 1, 1: 500, 2: 3}, 60.0) == pytest.approx(expected)


def test_of_one_that_was_opened_a_page_is_read_for_each_key(slow: History):
    lazy(slow).bring(0)
    cache, pages = far(slow), slow.snapshot_of(0).size // PAGE
    assert pages > 2
    for keys, read in ((0, 1), (1, 1), (2, 2), (10_000, pages)):
        assert seconds_to_look_up(cache, {0: keys}, 60.0) == pytest.approx(read * PAGE / SPEED)


def test_where_there_is_nothing_to_look_up_it_takes_no_time(slow: History):
    assert seconds_to_look_up(far(slow), {}, 60.0) == 0
    assert seconds_to_look_up(far(slow), {2: 9}, 60.0) == 0, "the group has no snapshot"
    Path(slow.storage.path(slow.snapshot_of(0).path)).unlink()
    assert seconds_to_look_up(far(slow), {0: 9}, 60.0) == 0, "its snapshot is gone: who reads it says so"


@pytest.mark.parametrize(("patience", "pages"), [(60.0, 8), (0.0, 1), (2.5 * PAGE / SPEED, 3)])
def test_few_pages_are_read_to_know_it_and_none_when_patience_is_at_its_end(
    slow: History, clock: Clock, patience: float, pages: int
):
    seconds_to_look_up(far(slow), {0: 1, 1: 1}, patience)
    assert clock.now == pytest.approx(pages * PAGE / SPEED)
