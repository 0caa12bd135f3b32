"""Directories of staged files: spelled for Spark and for us, listed without what is hidden, missed when gone."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import SinkError
from midstream.sinks import directories
from midstream.sinks.contract import LostRowsError


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """Give a directory as Spark leaves it: files in partitions, and what only Spark looks at."""
    for name in (
        "part-1.parquet", "part-0.parquet", "day=1/part-0.parquet", "_SUCCESS", ".part-0.parquet.crc",
        "_temporary/0/part-9.parquet", "day=1/.part-0.crc", ".hidden/part-0.parquet",
    ):  # fmt: skip
        file = tmp_path / "staged" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "staged" / "empty").mkdir()
    return tmp_path / "staged"


FILES = ["day=1/part-0.parquet", "part-0.parquet", "part-1.parquet"]


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("/data/out", "/data/out"),
        ("/data//x/../out/", "/data/out"),
        (Path("/data/out"), "/data/out"),
        ("file:/data/out", "/data/out"),
        ("file:///data/out", "/data/out"),
        ("s3a://bucket/out", "s3a://bucket/out"),
        ("hdfs://host:9000/out", "hdfs://host:9000/out"),
    ],
)
def test_a_path_is_absolute_and_a_uri_as_it_is(location: Any, found: str):
    assert directories.absolute(location) == found


def test_a_relative_path_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert directories.absolute("out") == str(tmp_path / "out")
    filesystem, path = directories.resolve("out")
    assert isinstance(filesystem, pafs.LocalFileSystem)
    assert path == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("location", "spark"),
    [("/data/out", "file:///data/out"), ("s3://bucket/out", "s3a://bucket/out"), ("hdfs://h/out", "hdfs://h/out")],
)
def test_spark_is_told_the_file_system(location: str, spark: str):
    assert directories.spark_path(location) == spark


def test_what_is_inside_has_one_separator():
    assert directories.join("/data/", "a", "b") == directories.join("/data", "a", "b") == "/data/a/b"
    assert directories.join("s3://bucket") == "s3://bucket"


@given(st.text("ab[]{}*?\\", min_size=1, max_size=6))
def test_a_pattern_has_a_backslash_before_every_sign_of_patterns_and_no_other(name: str):
    pattern, expected = directories.spark_pattern(f"/data/{name}"), ""
    for character in directories.spark_path(f"/data/{name}"):
        expected += f"\\{character}" if character in "[]{}*?\\" else character
    assert pattern == expected


# --- files ----------------------------------------------------------------------------------------------------------


def test_only_visible_files_are_listed_in_order(staged: Path):
    visible = [path for path in glob.glob(str(staged / "**/*"), recursive=True) if os.path.isfile(path)]
    expected = sorted(os.path.relpath(path, staged) for path in visible if "/_" not in path.removeprefix(str(staged)))
    assert directories.list_files(str(staged)) == expected == FILES


def test_a_directory_that_is_not_there_has_no_files(tmp_path: Path):
    assert directories.list_files(str(tmp_path / "gone")) == []
    directories.remove(str(tmp_path / "gone"))


def test_single_files_are_deleted_and_the_others_stay(staged: Path):
    directories.drop(str(staged), ["day=1/part-0.parquet"])
    assert directories.list_files(str(staged)) == FILES[1:]
    directories.drop(str(staged), [])
    with pytest.raises(SinkError, match=r"staged files in .* cannot be removed: .*nothing is lost"):
        directories.drop(str(staged), ["no such file"])


def test_a_directory_is_removed_with_all_that_is_in_it_and_again(staged: Path):
    for _ in range(2):
        directories.remove(str(staged))
        assert not staged.exists()


def test_files_and_the_directories_that_lead_to_them_are_synced(staged: Path, monkeypatch: pytest.MonkeyPatch):
    expected = [staged / name for name in FILES] + [staged, staged / "day=1", staged.parent]
    by_inode, synced = {path.stat().st_ino: str(path) for path in expected}, list[str]()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(by_inode[os.fstat(fd).st_ino]))
    directories.make_durable(str(staged), FILES)
    assert sorted(synced) == sorted(map(str, expected))
    assert synced.index(str(staged / FILES[0])) < synced.index(str(staged / "day=1")) < synced.index(str(staged))


def test_a_file_that_cannot_be_synced_is_said_with_its_directory(staged: Path):
    with pytest.raises(SinkError, match=f"staged files in {staged} cannot be written: .*Check the space"):
        directories.make_durable(str(staged), ["no such file"])


def test_rows_that_are_gone_are_missed_with_the_first_file(staged: Path):
    directories.refuse_lost(str(staged), FILES, "out", 7)
    directories.refuse_lost(str(staged), [], "out", 7)
    (staged / "part-0.parquet").unlink()
    (staged / "part-1.parquet").unlink()
    with pytest.raises(LostRowsError, match=r"sink 'out': rows of epoch 7 .* part-0\.parquet is gone .*accept"):
        directories.refuse_lost(str(staged), FILES, "out", 7)
    with pytest.raises(LostRowsError):
        directories.refuse_lost(str(staged.parent / "gone"), FILES, "out", 7)
