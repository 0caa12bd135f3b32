"""Snapshots in the durable store are what was written, or are refused, whether they are copied or read there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from midstream.checkpoint.layout import home_of
from midstream.checkpoint.records import SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.state.snapshots import Snapshots
from midstream.state.stores.contract import Version
from midstream.state.stores.memory import MemoryStore
from midstream.state.throttle import Throttle

VERSION = Version("job", 3, "c")
ENTRIES = {b"\1a": b"1", b"\1b": b"2"}


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    """Give the snapshots of an operator that has none."""
    return Snapshots(Storage(str(tmp_path / "checkpoint")), home_of("sums", 0), "toy", Throttle())


@pytest.fixture
def written(snapshots: Snapshots, tmp_path: Path) -> SnapshotRef:
    """Give a snapshot of group 7."""
    return snapshots.write(7, MemoryStore(ENTRIES, VERSION), VERSION, str(tmp_path / "local"))


def test_a_snapshot_says_of_what_it_is_and_leaves_no_local_file(
    snapshots: Snapshots, written: SnapshotRef, tmp_path: Path
):
    assert (written.epoch, written.commit) == (VERSION.epoch, VERSION.commit)
    assert written.path.startswith("state/sums/000000000000/snapshot/000007/000000000003-")
    assert written.path.endswith(".toy")
    assert written.size == os.path.getsize(snapshots.path(written))
    assert not (tmp_path / "local").exists()


def test_a_copy_is_what_was_written(snapshots: Snapshots, written: SnapshotRef, tmp_path: Path):
    snapshots.copy(written, str(tmp_path / "copy"))
    with MemoryStore.restore(str(tmp_path / "copy")).reader() as reader:
        assert dict(reader.scan(b"\1", b"\xff")) == ENTRIES
    snapshots.verify(written)


def test_what_is_not_what_was_written_is_refused_and_not_left_behind(
    snapshots: Snapshots, written: SnapshotRef, tmp_path: Path
):
    stored = Path(snapshots.path(written))
    stored.write_bytes(stored.read_bytes().replace(b"1", b"3"))
    with pytest.raises(ValueError, match="its checksum does not match"):
        snapshots.verify(written)
    with pytest.raises(ValueError, match="its checksum does not match"):
        snapshots.copy(written, str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_snapshot_of_another_kind_of_store_is_refused(snapshots: Snapshots, written: SnapshotRef, tmp_path: Path):
    others = Snapshots(snapshots.storage, snapshots.home, "mdb", Throttle())
    with pytest.raises(ValueError, match="it was written by a store of another format than 'mdb'"):
        others.verify(written)
    with pytest.raises(ValueError, match="another format"):
        others.copy(written, str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_reading_a_far_snapshot_waits_for_every_byte_of_it(
    snapshots: Snapshots, written: SnapshotRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waited: list[float] = []
    monkeypatch.setattr("midstream.state.throttle.time.sleep", waited.append)
    far = Snapshots(snapshots.storage, snapshots.home, "toy", Throttle(bytes_per_second=1))
    far.verify(written)
    far.copy(written, str(tmp_path / "copy"))
    assert waited == pytest.approx([written.size, written.size], abs=1)
