"""Files of LMDB as a kind of store: what the contract, which is tested elsewhere, leaves to it."""

from __future__ import annotations

import os
from pathlib import Path

from midstream.state.background import in_background
from midstream.state.stores import lmdb as lmdb_store
from midstream.state.stores.contract import Version
from midstream.state.stores.lmdb_kind import LmdbKind
from tests.support.edits import Edits

VERSION = Version("job", 1, "c")


def test_a_copy_of_a_snapshot_has_room_to_grow_before_it_is_mapped_anew(tmp_path: Path):
    kind, path = LmdbKind(), str(tmp_path / "copy")
    full = kind.open(str(tmp_path / "full"))
    full.apply([Edits({b"\1a": b"x" * 2_000_000})], VERSION)
    full.snapshot(path)
    size = os.path.getsize(path)
    store = kind.restored(path)
    assert os.path.getsize(path) == size + (1 << 20)
    store.apply([Edits({b"\1b": b"y" * 500_000})], VERSION)
    assert os.path.getsize(path) == size + (1 << 20)
    full.close()
    store.close()


def test_what_is_deleted_is_closed_at_once_and_its_files_are_gone_soon(tmp_path: Path):
    kind, path = LmdbKind(), str(tmp_path / "store")
    kind.open(path)
    assert path in lmdb_store._open
    assert os.path.exists(f"{path}-lock")
    kind.delete(path)
    assert path not in lmdb_store._open
    in_background(lambda: None).result()
    assert list(tmp_path.iterdir()) == []
