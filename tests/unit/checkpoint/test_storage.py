"""The durable store on a local disk: files are whole or not there.

What holds of every store is in `tests/contract/test_storage.py`."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Give a directory that does not exist yet."""
    return Storage.at(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("/data/job", "/data/job"),
        ("/data/job/", "/data/job"),
        ("file:///data/job", "/data/job"),
        ("file:/data/job/", "/data/job"),
        (Path("/data/job"), "/data/job"),
        ("s3://bucket/job/", "s3://bucket/job"),
        ("s3a://bucket/job", "s3://bucket/job"),
        ("hdfs://host:9000/job", "hdfs://host:9000/job"),
    ],
)
def test_a_directory_is_a_path_or_a_uri(location: Any, root: str):
    assert Storage.at(location).root == root


def test_a_relative_path_is_below_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert Storage.at("job").root == str(tmp_path / "job")


@pytest.mark.parametrize(
    ("root", "address"),
    [
        ("/data", "file:///data/a/b"),
        ("s3://bucket", "s3a://bucket/a/b"),
        ("gcs://bucket", "gs://bucket/a/b"),
        ("hdfs://h", "hdfs://h/a/b"),
    ],
)
def test_spark_knows_a_file_under_its_own_address(root: str, address: str):
    assert Storage(root).for_spark("a", "b") == address


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    storage.write("record", b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for step in ("fsync", "replace"):
        monkeypatch.setattr(os, step, fail)
        with pytest.raises(OSError, match="Input/output"):
            storage.write("record", b"new")
        monkeypatch.undo()
        assert storage.read("record") == b"old"
        assert storage.list("") == ["record"]


def test_a_full_disk_is_said_with_the_file_and_what_to_do(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"the disk is full: .*/logs/x could not be written. Free some space"):
        storage.write_new("logs/x", b"content")


def test_a_link_is_deleted_and_not_what_it_points_to(storage: Storage, tmp_path: Path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    storage.write("x", b"")
    os.symlink(tmp_path / "precious", storage.path("link"))
    storage.delete("link")
    assert (tmp_path / "precious" / "file").exists()
