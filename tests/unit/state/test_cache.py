"""Bringing a group to the head of the history: what is trusted, what is restored, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from midstream.checkpoint.layout import commit_file, log_directory
from midstream.checkpoint.records import Report
from midstream.errors import StateError
from midstream.state.background import in_background
from midstream.state.changelog import LogWriter
from midstream.state.stores import lmdb as lmdb_store
from midstream.state.stores.contract import Version
from midstream.state.stores.layered import LayeredStore
from midstream.state.stores.lmdb import LmdbStore
from tests.support.edits import Edits
from tests.support.histories import GROUPS, HOME, History, contents


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Give a job that has not run yet."""
    return History(tmp_path)


A, B, C = b"\1a", b"\1b", b"\1c"
WHOLE = "tests.outside.whole:Whole"  # a store of another package


# --- caught up, or restored -----------------------------------------------------------------------------------------


def test_a_group_that_never_changed_is_empty_and_not_restored(history: History):
    cache = history.cache()
    assert contents(cache.bring(0)) == {}
    history.epoch({1: {A: b"1"}})
    cache = history.cache()
    assert contents(cache.bring(0)) == {}
    assert cache.restored == 0


def test_a_cached_group_is_caught_up_without_being_restored(history: History):
    history.epoch({0: {A: b"1", B: b"1"}})
    assert contents(history.cache().bring(0)) == {A: b"1", B: b"1"}
    for number in range(2, 7):
        history.epoch({0: {A: b"%d" % number, B: None}, 1: {A: b"x"}})
    cache = history.cache(recent=2)
    store = cache.bring(0)
    assert contents(store) == {A: b"6"}
    assert cache.restored == 0
    assert store.version() == Version("job", 5, history.commits[5].id)


def test_a_group_of_a_new_host_is_restored_once(history: History):
    history.epoch({0: {A: b"1"}, 1: {A: b"1"}})
    history.epoch({0: {B: b"2"}}, snapshots=(0,))
    cache = history.cache("new host")
    assert [contents(cache.bring(group)) for group in range(GROUPS)] == [{A: b"1", B: b"2"}, {A: b"1"}, {}]
    assert cache.restored == 2
    again = history.cache("new host")
    assert contents(again.bring(0)) == {A: b"1", B: b"2"}
    assert again.restored == 0


@pytest.mark.parametrize("host", ["new host", "host of another job"])
@pytest.mark.parametrize("in_place", [False, True])
def test_several_groups_come_whole_at_once(history: History, in_place: bool, host: str):
    if host == "host of another job":
        cache = history.cache(host)
        cache.bring(0).apply([Edits({C: b"0"})], Version("another job", 0, "another commit"))
    history.epoch({0: {A: b"1"}, 1: {A: b"1"}})
    history.epoch({}, snapshots=(0, 1))
    history.epoch({0: {A: None, B: b"2"}})
    history.epoch({0: {B: b"3", C: b"3"}})
    cache = history.cache(host, in_place=in_place)
    cache.bring_all(range(GROUPS))
    assert cache.restored == 2
    assert cache.budget.copied == sum(history.snapshot_of(group).size for group in (0, 1))
    stores = [cache.bring(group) for group in range(GROUPS)]
    assert [contents(store) for store in stores] == [{B: b"3", C: b"3"}, {A: b"1"}, {}]
    assert all(isinstance(store, LmdbStore) for store in stores)


def test_a_group_that_rested_longer_than_records_are_kept_can_change_again(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({0: {B: b"1"}})
    for _ in range(3):
        history.epoch({1: {A: b"x"}}, snapshots=(0,))
    history.forget(range(4))
    history.epoch({0: {B: b"2"}})
    for host in ("host", "new host"):
        assert contents(history.cache(host).bring(0)) == {A: b"1", B: b"2"}


def test_epochs_that_did_not_change_a_group_are_not_missed(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    history.epoch({0: {B: b"2"}})
    assert contents(history.cache("old host").bring(0)) == {A: b"1", B: b"2"}
    for _ in range(5):
        history.epoch({1: {A: b"x"}})
    history.forget(range(3, 7))
    history.epoch({0: {C: b"3"}})
    for host in ("host", "old host", "new host"):
        assert contents(history.cache(host).bring(0)) == {A: b"1", B: b"2", C: b"3"}


def test_a_copy_that_is_older_than_the_snapshot_is_restored_where_epochs_are_missing(history: History):
    history.epoch({0: {A: b"1"}})
    assert contents(history.cache("old host").bring(0)) == {A: b"1"}
    history.epoch({0: {B: b"2"}})
    history.epoch({0: {C: b"3"}})
    history.epoch({}, snapshots=(0,))
    history.epoch({0: {A: b"4"}})
    history.forget(range(1, 2))
    cache = history.cache("old host")
    assert contents(cache.bring(0)) == {A: b"4", B: b"2", C: b"3"}
    assert cache.restored == 1


def test_a_copy_that_was_empty_when_the_group_left_is_not_taken_for_its_history(history: History):
    assert contents(history.cache("first host").bring(0)) == {}
    for number in range(4):
        history.epoch({0: {b"\1%d" % number: b"x"}}, host="other host")
    history.epoch({}, snapshots=(0,), host="other host")
    history.epoch({0: {C: b"x"}}, host="other host")
    history.forget(range(4))
    expected = {**{b"\1%d" % number: b"x" for number in range(4)}, C: b"x"}
    assert contents(history.cache("first host").bring(0)) == expected


def test_a_copy_of_another_history_of_the_same_job_is_restored(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({0: {A: b"2", B: b"2"}})
    assert contents(history.cache().bring(0)) == {A: b"2", B: b"2"}
    history.commits.pop()
    history.storage.delete(commit_file(1))
    cache = history.cache()
    assert contents(cache.bring(0)) == {A: b"1"}
    history.epoch({0: {C: b"3"}})
    assert contents(history.cache().bring(0)) == {A: b"1", C: b"3"}


def test_a_copy_from_before_the_first_change_of_another_history_is_begun_anew(history: History):
    history.epoch({0: {A: b"1"}})
    assert contents(history.cache().bring(0)) == {A: b"1"}
    history.commits.clear()
    history.storage.delete(commit_file(0))
    assert contents(history.cache().bring(0)) == {}
    history.epoch({1: {A: b"1"}})
    assert contents(history.cache().bring(0)) == {}


def test_what_was_written_but_not_committed_is_not_read(history: History):
    history.epoch({0: {A: b"1"}})
    log = LogWriter()
    log.add(0, [A], [b"never"])
    log.write(history.storage, log_directory(HOME, 1, "failed"), Report(operator="sums", slot=0))
    history.epoch({0: {B: b"2"}})
    for host in ("host", "new host"):
        assert contents(history.cache(host).bring(0)) == {A: b"1", B: b"2"}


# --- in place -------------------------------------------------------------------------------------------------------


def test_in_place_a_snapshot_is_read_where_it_is(history: History):
    history.epoch({0: {A: b"1", B: b"1"}})
    history.epoch({}, snapshots=(0,))
    history.epoch({0: {B: None, C: b"3"}})
    cache = history.cache("new host", in_place=True)
    store = cache.bring(0)
    assert isinstance(store, LayeredStore)
    assert contents(store) == {A: b"1", C: b"3"}
    assert [path.name for path in Path(cache.copies.directory).iterdir() if path.name.endswith(".mdb")] == []


def test_a_group_in_place_is_copied_before_it_is_snapshotted_again(history: History):
    history.epoch({0: {A: b"1", B: b"1"}})
    history.epoch({}, snapshots=(0,))
    history.epoch({0: {B: None, C: b"3"}})
    cache = history.cache("new host", in_place=True)
    cache.bring(0)
    taken = cache.snapshot(0)
    assert taken is not None
    assert contents(LmdbStore(history.storage.path(taken[1].path))) == {A: b"1", C: b"3"}
    assert isinstance(history.cache("new host", in_place=True).bring(0), LmdbStore)


def test_a_group_in_place_is_restored_when_its_snapshot_is_gone(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    old = history.snapshot_of(0)
    assert contents(history.cache("new host", in_place=True).bring(0)) == {A: b"1"}
    history.epoch({0: {B: b"2"}})
    history.epoch({}, snapshots=(0,))
    history.storage.delete(old.path)
    assert contents(history.cache("new host", in_place=True).bring(0)) == {A: b"1", B: b"2"}


# --- snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_of_the_last_change_and_says_its_size_and_checksum(history: History):
    first = history.epoch({0: {A: b"1"}})
    history.epoch({1: {A: b"1"}})
    taken = history.cache().snapshot(0)
    assert taken is not None
    group, reference = taken
    assert (group, reference.epoch, reference.commit) == (0, 0, first.id)
    stored = Path(history.storage.path(reference.path))
    assert stored.stat().st_size == reference.size
    assert contents(LmdbStore(str(stored))) == {A: b"1"}
    assert [path for path in Path(history.cache().copies.directory).iterdir() if "snapshot" in path.name] == []


def test_a_group_that_never_changed_is_not_snapshotted(history: History):
    assert history.cache().snapshot(0) is None


def test_a_cache_on_another_file_system_can_be_snapshotted(history: History, monkeypatch: pytest.MonkeyPatch):
    history.epoch({0: {A: b"1"}})
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if "snapshot" in str(target):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    history.epoch({}, snapshots=(0,))
    monkeypatch.undo()
    assert contents(history.cache("new host").bring(0)) == {A: b"1"}


def test_a_snapshot_is_read_in_place_by_two_jobs_that_have_it_under_two_names(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    base = history.storage.path(history.snapshot_of(0).path)
    twin = str(history.directory / "linked.mdb")
    os.link(base, twin)
    for turn, name in enumerate((base, twin, base)):
        store = LayeredStore(name, str(history.directory / f"layer {turn}"))
        assert contents(store) == {A: b"1"}


# --- what is left behind --------------------------------------------------------------------------------------------


def test_a_restored_group_leaves_no_files_of_its_former_copies(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    for in_place in (True, False, True, False):
        cache = history.cache(in_place=in_place)
        cache._restore(0)
        in_background(lambda: None).result()  # what was deleted is gone
        names = os.listdir(cache.copies.directory)
        assert "0.current" in names
        layered = 4 if in_place else 3  # the pointer, the link, the layer, its lock; or the pointer, the file, its lock
        assert len(names) == layered
        open_files = [path for path in lmdb_store._open if path.startswith(cache.copies.directory)]
        assert len(open_files) == 1


# --- stores of other kinds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
def test_a_store_of_another_package_is_caught_up_snapshotted_and_restored_as_ours(history: History, in_place: bool):
    history.store = WHOLE
    history.epoch({0: {A: b"1", B: b"1"}, 1: {A: b"1"}})
    assert contents(history.cache().bring(0)) == {A: b"1", B: b"1"}
    history.epoch({}, snapshots=(0, 1))
    history.epoch({0: {B: None, C: b"3"}})
    cache = history.cache()
    assert contents(cache.bring(0)) == {A: b"1", C: b"3"}
    assert cache.restored == 0
    there = history.cache("new host", in_place=in_place)
    assert not there.reads_there, "it cannot"
    there.bring_all(range(GROUPS))
    assert [contents(there.bring(group)) for group in range(GROUPS)] == [{A: b"1", C: b"3"}, {A: b"1"}, {}]
    assert there.restored == 2
    assert history.snapshot_of(0).path.endswith(".whole")
    assert {path.suffix for path in Path(there.copies.directory).iterdir()} == {".current", ".whole"}
    there.copies.drop(0)
    assert not there.copies.is_here(0)


def test_a_copy_that_another_kind_of_store_has_written_is_restored_from_logs(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({0: {B: b"2"}})
    assert contents(history.cache().bring(0)) == {A: b"1", B: b"2"}
    for history.store in (WHOLE, "lmdb"):
        cache = history.cache()
        assert not cache.lacks_logs_only(0)
        assert contents(cache.bring(0)) == {A: b"1", B: b"2"}
        assert cache.restored == 1


def test_a_snapshot_that_another_kind_of_store_has_written_is_refused(history: History):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    history.store = WHOLE
    with pytest.raises(StateError, match="it was written by a store of another format than 'whole'"):
        history.cache("new host").bring(0)
