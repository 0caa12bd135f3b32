"""Bringing a group to the head of the history where something is damaged: it is restored, or refused by name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from midstream.checkpoint.layout import commit_file
from midstream.errors import StateError
from midstream.state.cache import Cache
from midstream.state.stores import lmdb as lmdb_store
from midstream.state.stores.contract import Version
from midstream.state.stores.lmdb import LmdbStore
from tests.support.edits import Edits
from tests.support.histories import GROUPS, History, contents


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Give a job that has not run yet."""
    return History(tmp_path)


A, B, C = b"\1a", b"\1b", b"\1c"


# --- what cannot be restored ----------------------------------------------------------------------------------------


def test_a_change_log_that_is_gone_is_named(history: History):
    history.epoch({0: {A: b"1"}})
    history.log_of(0).unlink()
    with pytest.raises(StateError, match=f"the change log {history.log_of(0)} is missing or damaged"):
        history.cache().bring(0)


@pytest.mark.parametrize("in_place", [False, True], ids=["copied", "in place"])
@pytest.mark.parametrize("damage", ["gone", "cut", "another"])
def test_a_snapshot_that_is_gone_or_damaged_is_named(history: History, damage: str, in_place: bool):
    history.epoch({0: {A: b"1"}})
    history.epoch({}, snapshots=(0,))
    history.epoch({0: {A: b"2"}})
    path = Path(history.storage.path(history.snapshot_of(0).path))
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        os.truncate(path, path.stat().st_size - 4096)
    else:
        path.write_bytes(b"x" * (path.stat().st_size + 1))
    for bring in (lambda cache: cache.bring(0), lambda cache: cache.bring_all([0])):
        with pytest.raises(StateError, match=f"the snapshot {path} is missing or damaged"):
            bring(history.cache("new host", in_place=in_place))


def test_a_copy_of_a_snapshot_with_a_wrong_bit_is_refused(history: History):
    history.epoch({0: {A: b"1" * 100}})
    history.epoch({}, snapshots=(0,))
    path = Path(history.storage.path(history.snapshot_of(0).path))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1" * 100, b"1" * 99 + b"2"))
    with pytest.raises(StateError, match="its checksum does not match"):
        history.cache("new host").bring(0)


def test_a_damaged_record_is_named(history: History):
    for number in range(4):
        history.epoch({0: {A: b"%d" % number}})
    history.storage.write(commit_file(1), b"{")
    with pytest.raises(Exception, match=f"{history.storage.path(commit_file(1))} is damaged"):
        history.cache("new host").bring(0)


def test_what_a_head_says_can_be_shipped(history: History):
    import pickle

    history.epoch({0: {A: b"1"}})
    head = history.cache().head
    assert pickle.loads(pickle.dumps(head)) == head
    assert contents(Cache(pickle.loads(pickle.dumps(head))).bring(0)) == {A: b"1"}
    assert msgspec.structs.asdict(history.commits[0])["epoch"] == head.epoch


def test_a_cached_file_with_an_unreadable_version_is_restored(history: History):
    history.epoch({0: {A: b"1"}})
    store = history.cache().bring(0)
    assert isinstance(store, LmdbStore)
    with store._env.begin(write=True) as transaction:
        transaction.put(lmdb_store.META, b"\xc1")
    cache = history.cache()
    assert contents(cache.bring(0)) == {A: b"1"}
    assert cache.restored == 1


def test_a_pointer_that_is_no_pointer_is_replaced(history: History):
    history.epoch({0: {A: b"1"}})
    cache = history.cache()
    os.makedirs(cache.copies.directory)
    Path(cache.copies.directory, "0.current").write_text("not a link")
    assert contents(cache.bring(0)) == {A: b"1"}


def test_a_copy_of_another_job_is_restored(history: History):
    commit = history.epoch({0: {A: b"1"}})
    cache = history.cache()
    os.makedirs(cache.copies.directory)
    path = os.path.join(cache.copies.directory, "0.other.mdb")
    LmdbStore(path).apply([Edits({B: b"other"})], Version("another job", 0, commit.id))
    os.symlink("0.other.mdb", os.path.join(cache.copies.directory, "0.current"))
    assert contents(cache.bring(0)) == {A: b"1"}


# --- damage that must not be read over --------------------------------------------------------------------------------


def test_a_record_that_vanishes_is_missed_and_not_skipped(history: History):
    for number in range(4):
        history.epoch({0: {b"\1%d" % number: b"x"}})
    history.storage.delete(commit_file(1))
    with pytest.raises(StateError, match=r"its history in .* is not complete"):
        history.cache("new host", recent=0).bring(0)


def test_a_snapshot_is_verified_before_it_is_read_in_place(history: History):
    history.epoch({0: {A: b"1" * 5000}})
    history.epoch({}, snapshots=(0,))
    file = Path(history.storage.path(history.snapshot_of(0).path))
    whole = file.read_bytes()
    for bit in range(0, len(whole) * 8, 4001):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(StateError, match=r"the snapshot .* is missing or damaged \(its checksum does not match\)"):
            history.cache(f"host {bit}", in_place=True).bring(0)
    file.write_bytes(whole)
    assert contents(history.cache("host", in_place=True).bring(0)) == {A: b"1" * 5000}


def test_a_copy_of_an_operator_that_was_forgotten_is_not_taken_for_one_of_its_successor(history: History):
    history.epoch({0: {A: b"old"}})
    cache = history.cache()
    assert contents(cache.bring(0)) == {A: b"old"}
    head = replace(cache.head, born=1, changed=(None,) * GROUPS)
    assert contents(Cache(head).bring(0)) == {}
