"""Where a cache lies: apart for each executor, and for each boot of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from midstream.state.location import boot_id, discard_other_boots, executor_cache
from tests.support.histories import History


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Give a job that has not run yet."""
    return History(tmp_path)


A = b"\1a"


def test_what_earlier_boots_of_the_machine_left_is_deleted(history: History):
    history.epoch({0: {A: b"1"}})
    history.cache().bring(0)
    root = history.directory / "host" / "job"
    (root / "another boot" / "sums").mkdir(parents=True)
    (root / "another boot" / "sums" / "0.mdb").touch()
    discard_other_boots(str(history.directory / "host"), "job")
    assert [path.name for path in root.iterdir()] == [boot_id()]
    discard_other_boots(str(history.directory / "no host"), "job")


def test_other_jobs_keep_what_they_have(tmp_path: Path):
    (tmp_path / "other" / "another boot").mkdir(parents=True)
    (tmp_path / "job" / "another boot").mkdir(parents=True)
    discard_other_boots(str(tmp_path), "job")
    assert [path.name for path in tmp_path.rglob("another boot")] == ["another boot"]
    assert (tmp_path / "other" / "another boot").exists()


def test_a_boot_of_the_machine_has_one_name():
    assert boot_id() == boot_id()
    assert boot_id().strip() == boot_id() != ""
    assert os.sep not in boot_id()


def test_executors_that_share_a_host_have_caches_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = set()
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert executor_cache(str(tmp_path / "cache")) == executor_cache(str(tmp_path / "cache"))
        found.add(executor_cache(str(tmp_path / "cache")))
    assert {os.path.dirname(path) for path in found} == {str(tmp_path / "cache")}
    assert len(found) == 2


def test_without_a_directory_the_cache_goes_with_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert executor_cache("") == str(tmp_path / "state")
