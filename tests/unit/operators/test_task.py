"""The task of a slot: what it says of its rows, and which groups it copies first when some are not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.operators.task import Relocation
from midstream.state.cache import Cache
from midstream.state.copying import seconds_to_look_up
from midstream.state.stores.lmdb import PAGE
from tests.support.far_store import Clock
from tests.support.summing import GROUPS, Summing

ALL = frozenset(range(GROUPS))
ONE_A_TIME = 1  # byte: the first group spends it
LAZY = Relocation(lazy=True)


def with_snapshots(directory: Path, *, folded: bool = False) -> Summing:
    """A sum that has run on one host, with a snapshot of every group."""
    slot = Summing(directory, folded)
    slot.epoch(dict.fromkeys(range(2 * GROUPS), 1))
    slot.epoch({}, snapshots=ALL)
    return slot


@pytest.mark.parametrize("folded", [False, True])
def test_heat_counts_rows_and_not_keys_that_changed(tmp_path: Path, folded: bool):
    report = Summing(tmp_path, folded).epoch({1: 5_000, 2: 3, 2 + GROUPS: 1, 4: 1})
    assert report.heat == {1: 5_000, 2: 4, 4: 1}
    assert dict(report.groups) == {1: 1, 2: 2, 4: 1}


@pytest.mark.parametrize("folded", [False, True])
def test_the_key_with_most_rows_is_named(tmp_path: Path, folded: bool):
    slot = Summing(tmp_path, folded)
    assert slot.epoch({1: 5_000, 2: 3, 2 + GROUPS: 1, 4: 1}).hottest == (5_000, "1")
    assert slot.epoch({}).hottest == (0, "")


def test_rows_of_a_group_that_two_slots_process_are_counted_once(tmp_path: Path):
    slot = Summing(tmp_path)
    both = Relocation(both={0: (3,)})
    assert slot.epoch({1: 2, 3: 7}, relocation=both, mine=ALL - {3}).heat == {1: 2}, "group 3 is of another"


@pytest.mark.parametrize("folded", [False, True])
def test_the_groups_with_most_rows_in_this_epoch_are_copied_first(tmp_path: Path, folded: bool):
    slot = with_snapshots(tmp_path, folded=folded)
    first = slot.epoch({1: 1, 2: 1, 4: 1, 5: 1}, "new", relocation=LAZY, prefetch=ONE_A_TIME)
    assert (first.restored, slot.is_whole("new")) == (4, []), "who had to read for its rows copies nothing"
    slot.epoch({1: 1, 2: 5, 2 + GROUPS: 5, 4: 900, 5: 9}, "new", relocation=LAZY, prefetch=ONE_A_TIME)
    assert slot.is_whole("new") == [4], "one key with many rows is more than many keys"
    slot.epoch({1: 8, 2: 5, 2 + GROUPS: 5, 5: 9}, "new", relocation=LAZY, prefetch=ONE_A_TIME)
    assert slot.is_whole("new") == [2, 4]
    assert slot.sums[4] == 902
    assert slot.sums[2] == 12


def test_those_without_rows_are_copied_by_what_they_had_before(tmp_path: Path):
    slot, order = with_snapshots(tmp_path), list[int]()
    while len(order) < GROUPS:
        report = slot.epoch({}, "new", relocation=LAZY, prefetch=ONE_A_TIME, heat={4: 3.0, 1: 0.5, 5: 80.0})
        order += sorted(set(slot.is_whole("new")) - set(order))
        assert report.in_place == GROUPS - len(order)
    assert order == [5, 4, 1, 0, 2, 3]


@pytest.mark.parametrize("folded", [False, True])
def test_rows_wait_for_the_groups_that_have_fewest(tmp_path: Path, folded: bool):
    slot, far = with_snapshots(tmp_path, folded=folded), Relocation(defers=True)  # nothing is read where it is stored
    told = slot.epoch({0: 1, 1: 2, 1 + GROUPS: 2, 3: 50}, "new", relocation=far, prefetch=ONE_A_TIME)
    assert told.deferred is not None
    assert told.deferred.groups == (0, 1), "the one key of group 3 had most rows"
    assert told.heat == {0: 1, 1: 4, 3: 50}, "those that wait too"
    while told.deferred is not None or slot.commits[-1].operators["sums"].backlog:
        told = slot.epoch({}, "new", relocation=far, prefetch=ONE_A_TIME)
        assert told.heat == {}, "rows that waited are not counted twice"
    assert [slot.sums[key] for key in (0, 1, 1 + GROUPS, 3)] == [2, 3, 3, 51]


SLOW = 1 << 20  # bytes a second: 4 milliseconds for a page, and more for a snapshot than there is time
SOME = dict.fromkeys(range(2 * GROUPS), 2) | {4: 9}


def test_rows_wait_where_a_mounted_store_is_slow(tmp_path: Path):
    slot = with_snapshots(tmp_path)
    told = slot.epoch(SOME, "new", bytes_per_second=SLOW, prefetch=1 << 30, prefetch_seconds=0.01)
    assert told.deferred is not None
    assert told.deferred.groups == (0, 1, 2, 3, 5), "the hottest has come, and with it the time was over"
    assert slot.is_whole("new") == [4]
    fewer = [len(told.deferred.groups)]
    while slot.commits[-1].operators["sums"].backlog:
        told = slot.epoch(SOME, "new", bytes_per_second=SLOW, prefetch=1 << 30, prefetch_seconds=0.01)
        fewer.append(len(told.deferred.groups) if told.deferred is not None else 0)
    assert fewer == [5, 4, 3, 2, 1, 0], "one more in every epoch"
    assert slot.sums == {key: 1 + 6 * count for key, count in SOME.items()}


@pytest.mark.parametrize(("speed", "seconds"), [(0, 5.0), (SLOW, 60.0)], ids=["fast", "patient"])
def test_no_row_waits_where_a_mounted_store_is_fast_enough(tmp_path: Path, speed: int, seconds: float):
    slot = with_snapshots(tmp_path)
    told = slot.epoch(SOME, "new", bytes_per_second=speed, prefetch=1 << 30, prefetch_seconds=seconds)
    assert (told.deferred, told.restored) == (None, GROUPS)
    assert slot.is_whole("new") == [], "they are read where they are stored"
    assert slot.sums == {key: 1 + count for key, count in SOME.items()}


def test_it_is_keys_that_are_looked_up_and_not_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Clock.put_in_place(monkeypatch)
    slot = Summing(tmp_path)
    slot.epoch({4 + GROUPS * number: 1 for number in range(20_000)})
    slot.epoch({}, snapshots=ALL)
    snapshot = slot.commits[-1].operators["sums"].snapshots[4]
    assert snapshot is not None
    cache = Cache(slot.head("new", bytes_per_second=SLOW), lazy=True)
    assert seconds_to_look_up(cache, {4: 1}, 1.0) >= snapshot.size / SLOW, "it is verified first, as a whole"
    slot.epoch({4: 1}, "new")
    cache = Cache(slot.head("new", bytes_per_second=SLOW), lazy=True)
    assert snapshot.size / SLOW > seconds_to_look_up(cache, {4: 100}, 1.0) >= 100 * PAGE / SLOW, (
        "each in a page of its own"
    )
    slot.epoch({4: 1_000}, "new", bytes_per_second=SLOW, prefetch_seconds=0.5, keys_per_row=1e-3)
    assert slot.is_whole("new") == [], "one page comes in time; it would be copied else"
    assert slot.sums[4] == 1_002


def test_a_damaged_copy_is_only_a_copy_also_for_who_asks_how_far_it_is(tmp_path: Path):
    slot = with_snapshots(tmp_path)
    slot.epoch(SOME, "new", relocation=LAZY)
    for link in (tmp_path / "new").rglob("*.base"):
        link.unlink()
    slot.epoch(SOME, "new", prefetch=1 << 30)
    assert slot.sums == {key: 1 + 2 * count for key, count in SOME.items()}
