"""A checkpoint is held by one driver at a time, and a driver notices when it is gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from midstream.checkpoint.lease import Lease
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError


def test_a_checkpoint_is_held_by_one_driver_at_a_time(tmp_path: Path):
    storage = Storage(str(tmp_path / "checkpoint"))
    lease = Lease(storage)
    with pytest.raises(
        CheckpointError, match=f"{storage.root} is in use by process {os.getpid()} .*one driver at a time"
    ):
        Lease(storage)
    lease.release()
    lease.release()
    Lease(storage).release()


def held_elsewhere(root: Path) -> subprocess.Popen[str]:
    """Another process that holds a checkpoint until it is told to end, or killed."""
    script = """
        import sys
        from midstream.checkpoint.lease import Lease
        from midstream.checkpoint.storage import Storage

        lease = Lease(Storage(sys.argv[1]))
        print("held", flush=True)
        sys.stdin.readline()
    """
    source = str(Path(__file__).parents[3] / "src")
    command = [sys.executable, "-c", textwrap.dedent(script), str(root)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": source}, stdin=pipe, stdout=pipe, text=True)


def test_a_lease_is_held_against_other_processes_and_ends_with_its_own(tmp_path: Path):
    storage = Storage(str(tmp_path / "checkpoint"))
    with held_elsewhere(tmp_path / "checkpoint") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=f"is in use by process {other.pid} "):
            Lease(storage)
        other.send_signal(signal.SIGKILL)
        other.wait()
    lease = Lease(storage)
    assert f"process {os.getpid()} " in Path(storage.path("lease")).read_text()
    lease.release()


@pytest.mark.parametrize("what", ["deleted", "exchanged", "moved"])
def test_a_checkpoint_that_goes_away_under_its_driver_is_noticed(tmp_path: Path, what: str):
    storage = Storage(str(tmp_path / "checkpoint"))
    lease = Lease(storage)
    lease.check()
    if what == "moved":
        os.rename(storage.root, tmp_path / "elsewhere")
    else:
        shutil.rmtree(storage.root)
    if what == "exchanged":
        storage.write("lease", b"of another")
    with pytest.raises(CheckpointError, match="was deleted, moved or exchanged while the job ran"):
        lease.check()
    lease.release()


def test_a_lease_of_somebody_who_left_no_name_is_refused_too(tmp_path: Path):
    storage = Storage(str(tmp_path / "checkpoint"))
    lease = Lease(storage)
    Path(storage.path("lease")).write_text("")
    with pytest.raises(CheckpointError, match="is in use by another process: one driver at a time"):
        Lease(storage)
    lease.release()


def test_elsewhere_than_on_a_disk_nothing_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    one, other = Lease(Storage("s3://bucket/job")), Lease(Storage("s3://bucket/job"))
    one.check()
    one.release()
    other.release()
    assert os.listdir(tmp_path) == []


def test_what_was_released_is_not_looked_after(tmp_path: Path):
    storage = Storage(str(tmp_path / "checkpoint"))
    lease = Lease(storage)
    lease.release()
    shutil.rmtree(storage.root)
    lease.check()
