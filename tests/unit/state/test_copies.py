"""The copies of groups on a host: made aside, exchanged in one step, and deleted with all that belongs to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from midstream.errors import StateError
from midstream.state.background import in_background
from midstream.state.copies import Copies
from midstream.state.stores.contract import GroupStore, Version
from midstream.state.stores.lmdb_kind import LmdbKind
from midstream.state.throttle import Throttle
from tests.support.edits import Edits
from tests.support.histories import contents

A, B = b"\1a", b"\1b"
VERSION = Version("job", 0, "c")


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    """Give the copies of a host that has none."""
    return Copies(str(tmp_path / "cache"), LmdbKind(), Throttle())


def filled(store: GroupStore, key: bytes = A) -> GroupStore:
    store.apply([Edits({key: b"1"})], VERSION)
    return store


def reopened(copies: Copies, group: int) -> GroupStore:
    store = copies.opened(group)
    assert store is not None
    return store


def files(copies: Copies) -> list[str]:
    in_background(lambda: None).result()  # what was deleted is gone
    return [name for name in os.listdir(copies.directory) if not name.endswith("-lock")]


def snapshot(copies: Copies, path: Path) -> str:
    filled(copies.begun(7)).snapshot(str(path))
    copies.drop(7)
    return str(path)


def test_where_there_is_no_copy_nothing_is_opened(copies: Copies):
    assert copies.opened(0) is None
    assert (copies.is_here(0), copies.is_whole(0), copies.snapshot_under(0)) == (False, False, None)
    copies.drop(0)


def test_a_copy_that_was_begun_is_the_one_of_its_group_alone(copies: Copies):
    filled(copies.begun(0))
    assert contents(reopened(copies, 0)) == {A: b"1"}
    assert (copies.is_here(0), copies.is_whole(0), copies.snapshot_under(0)) == (True, True, None)
    assert not copies.is_here(1)


def test_a_copy_over_a_snapshot_is_here_and_not_whole(copies: Copies, tmp_path: Path):
    base = snapshot(copies, tmp_path / "base")
    copies.begun_over(0, base).apply([Edits({B: b"2"})], VERSION)
    assert (copies.is_here(0), copies.is_whole(0), copies.snapshot_under(0)) == (True, False, base)
    assert contents(reopened(copies, 0)) == {A: b"1", B: b"2"}


def test_the_copy_before_is_deleted_with_all_that_belongs_to_it(copies: Copies, tmp_path: Path):
    base = snapshot(copies, tmp_path / "base")
    copies.begun_over(0, base)
    copies.begun(0)
    assert len(files(copies)) == 2, "the link, and the new copy"
    copies.drop(0)
    assert files(copies) == []
    assert os.path.exists(base), "it is of the durable store"


def test_a_copy_that_is_made_aside_counts_once_it_is_exchanged(copies: Copies, tmp_path: Path):
    filled(copies.begun(0))
    base, path = snapshot(copies, tmp_path / "base"), copies.new_path(0)
    os.link(base, path)
    assert path.endswith(".mdb")
    before = os.readlink(os.path.join(copies.directory, "0.current"))
    assert before != os.path.basename(path)
    copies.exchange(0, path)
    assert os.readlink(os.path.join(copies.directory, "0.current")) == os.path.basename(path)
    assert before not in files(copies)


def test_a_reader_of_the_copy_before_keeps_what_it_sees(copies: Copies):
    store = filled(copies.begun(0))
    with open(os.path.realpath(os.path.join(copies.directory, "0.current")), "rb") as file:
        store.close()
        copies.begun(0)
        in_background(lambda: None).result()
        assert len(file.read()) > 4096


def test_a_link_whose_file_is_gone_is_damage(copies: Copies):
    copies.begun(0).close()
    os.unlink(os.path.realpath(os.path.join(copies.directory, "0.current")))
    with pytest.raises(StateError, match="is gone"):
        copies.opened(0)
