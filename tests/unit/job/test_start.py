"""The default directory of the cache: state is read from there, so nobody else may write to it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from midstream.errors import PlanError
from midstream.job.start import _default_cache


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that is taken, in a temporary directory of our own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "somebody")
    return tmp_path / "midstream-somebody"


def test_it_is_made_for_its_user_alone_and_taken_again(where: Path) -> None:
    assert _default_cache() == _default_cache() == str(where)
    assert where.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_one_that_others_can_write_to_is_refused(where: Path, mode: int) -> None:
    where.mkdir()
    where.chmod(mode)
    with pytest.raises(PlanError, match=r"can be written to by others.*start\(cache=...\)"):
        _default_cache()


def test_one_of_another_user_is_refused(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where.mkdir(mode=0o700)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(PlanError, match="belongs to another user"):
        _default_cache()


def test_a_link_to_elsewhere_is_refused(where: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    where.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="could exchange the state"):
        _default_cache()
