"""What every durable store promises, on a local disk and on an object store; and what an object store does besides."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from midstream.checkpoint import storage as storage_module
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from tests.support.object_store import Gate, Rule

BIG = bytes(range(256)) * (25 << 12)  # 25 MiB: three parts of an upload


@pytest.fixture(params=["disk", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Give a directory that does not exist yet."""
    if request.param == "disk":
        return Storage.at(tmp_path / "checkpoint")
    return request.getfixturevalue("s3")


@pytest.fixture
def s3(object_store: Gate, tmp_path: Path) -> Storage:
    """Give a directory in a bucket of its own."""
    bucket = f"bucket-{os.urandom(6).hex()}"
    object_store.make_bucket(bucket)
    return Storage.at(f"s3://{bucket}/jobs/one")


def test_what_is_written_is_read_back_in_directories_that_are_made_on_the_way(storage: Storage) -> None:
    for content in (b"one", memoryview(b"two"), bytearray(b"three"), b""):
        storage.write("a/b/c", content)
        assert storage.read("a/b/c") == bytes(content) == storage.buffer("a/b/c").to_pybytes()
    storage.write_new("x/y", b"new")
    assert storage.read("x/y") == b"new"
    assert (storage.list("a/b"), storage.list("x"), storage.list("nowhere")) == (["c"], ["y"], [])
    assert storage.list("") == ["a", "x"]


def test_what_is_not_there_is_said_as_such(storage: Storage) -> None:
    storage.write("a/b", b"x")
    assert [storage.exists(path) for path in ("a/b", "a", "b", "a/bc")] == [True, True, False, False]
    for path in ("b", "a/c"):
        with pytest.raises(FileNotFoundError):
            storage.read(path)
        with pytest.raises(FileNotFoundError):
            storage.buffer(path)


def test_many_names_are_listed_at_once_and_deleted_at_once(storage: Storage) -> None:
    names = [f"{number:06}" for number in range(1010)]  # an object store gives them a thousand at a time
    for name in names:
        storage.write_new(f"many/{name}", b"")
    assert storage.list("many") == names
    storage.delete("many")
    assert storage.list("many") == []


def test_what_is_deleted_is_gone_and_may_be_deleted_again(storage: Storage) -> None:
    for path in ("a/b/c", "a/b/d", "a/bc", "a/e"):
        storage.write(path, b"x")
    storage.delete("a/e")
    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("nowhere/at/all")
    assert storage.list("a") == ["bc"]
    assert not storage.exists("a/b/c")
    storage.delete("")
    assert storage.list("") == []
    storage.delete("")


def test_a_directory_that_was_deleted_can_be_written_to_again(storage: Storage) -> None:
    for content in (b"one", b"two"):
        storage.write("a/b/c", content)
        assert storage.read("a/b/c") == content
        storage.delete("a")
        assert not storage.exists("a/b/c")


def test_an_uploaded_file_is_gone_from_where_it_was_and_can_be_downloaded(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(BIG)
    storage.upload(str(tmp_path / "local"), "snapshots/7/file")
    assert not (tmp_path / "local").exists()
    storage.download("snapshots/7/file", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == BIG == storage.read("snapshots/7/file")


def test_linked_files_stay_when_the_others_are_deleted(storage: Storage) -> None:
    storage.write("state/a/1", b"one")
    storage.write("state/b", b"two")
    beside = Storage(storage.path("shadow/x"))
    beside.write("other", b"")
    storage.link("state", beside)
    storage.link("nowhere", beside)
    storage.delete("state")
    assert (beside.read("state/a/1"), beside.read("state/b")) == (b"one", b"two")


def test_special_characters_in_names_are_taken_as_they_are(storage: Storage) -> None:
    for name in ("a b+c", "ü", "epoch=3", "100%25", "a#b?c"):
        storage.write(f"sub/{name}", name.encode())
        assert storage.read(f"sub/{name}") == name.encode()
        assert storage.list("sub") == [name]
        storage.delete(f"sub/{name}")


# --- an object store, and what it may answer -------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["500", "503", "lost"])
def test_a_refused_request_is_made_again(s3: Storage, object_store: Gate, answer: str, tmp_path: Path) -> None:
    with object_store.failing(Rule(answer, "one", times=1)) as (rule,):
        s3.write("record", b"new")
        assert rule.used == 1
    for action in (
        lambda: s3.read("record"),
        lambda: s3.list(""),
        lambda: s3.exists("record"),
        lambda: s3.download("record", str(tmp_path / "copy")),
        lambda: s3.delete("record"),
    ):
        with object_store.failing(Rule("500", "", times=1)) as (rule,):
            action()
            assert rule.used == 1
    assert not s3.exists("record")


def test_a_write_that_is_refused_for_good_leaves_what_was_there(
    s3: Storage, object_store: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "_TRIES", 1)  # else it takes minutes
    storage_module._s3.cache_clear()
    s3.write("record", b"old")
    for content, query in ((b"new", ""), (BIG, "partNumber=2"), (BIG, "uploadId")):
        with (
            object_store.failing(Rule("500", "record", "PUT|POST", query=query)),
            pytest.raises(CheckpointError, match=r"the store of .*/record has failed: .* start the job again"),
        ):
            s3.write("record", content)
        assert s3.read("record") == b"old"
        assert s3.list("") == ["record"]
    storage_module._s3.cache_clear()


def test_a_small_record_is_one_request(s3: Storage, object_store: Gate) -> None:
    object_store.seen.clear()
    s3.write("record", b"content")
    assert [(seen.method, seen.query) for seen in object_store.seen] == [("PUT", "")]


def test_a_client_is_made_once(s3: Storage) -> None:
    s3.write("record", b"content")
    first = s3._remote()[0]
    assert Storage(s3.root)._remote()[0] is first
    assert isinstance(first, pafs.S3FileSystem)
