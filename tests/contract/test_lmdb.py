"""The files of the LMDB store: shared by processes, cut off, or of something else."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from midstream.errors import StateError
from midstream.state.stores import lmdb as lmdb_store
from midstream.state.stores.contract import FIRST, LAST, Version
from midstream.state.stores.layered import LayeredStore
from midstream.state.stores.lmdb import LmdbStore, close_environment
from tests.contract.test_stores import BEGIN, NEXT, contents, in_lmdb, numbered
from tests.support.edits import Edits

# --- one file, several processes ------------------------------------------------------------------------------------


def test_two_stores_of_one_file_in_one_process_are_one(tmp_path: Path):
    path = str(tmp_path / "shared")
    one, other = LmdbStore(path), LmdbStore(path)
    one.apply([Edits(numbered(3_000, b"x" * 1000))], NEXT)
    assert other.version() == NEXT
    assert len(contents(other)) == 3_000
    one.close()


def test_no_more_files_are_open_than_the_bound_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_store, "_MAX_OPEN", 4)
    paths = [str(tmp_path / str(i)) for i in range(10)]
    for i, path in enumerate(paths):
        LmdbStore(path).apply([Edits({b"\1k": b"%d" % i})], NEXT)
        assert len(lmdb_store._open) <= 4
    assert [contents(LmdbStore(path)) for path in paths] == [[(b"\1k", b"%d" % i)] for i in range(10)]
    for path in paths:
        close_environment(path)


PAYLOAD = 400


def write_growing(path: str, epochs: int) -> None:
    """Make a store larger with every epoch; all its values tell the epoch."""
    store = LmdbStore(path)
    for epoch in range(1, epochs + 1):
        entries = numbered(epoch * 500)
        store.apply([Edits(dict.fromkeys(entries, b"%06d" % epoch + b"x" * PAYLOAD))], Version("job", epoch, "c"))


def read_until(path: str, last: int, reopen: bool) -> None:
    """Read while another process writes: every view is of one epoch, and epochs only advance."""
    store, seen, deadline = LmdbStore(path), 0, time.monotonic() + 60
    while seen < last:
        assert time.monotonic() < deadline, f"the writer stopped at epoch {seen}"
        if reopen:
            store.close()
            store = LmdbStore(path)
        with store.reader() as reader:
            found = list(reader.scan(FIRST, LAST))
            epochs = {value[:6] for _, value in found}
        assert len(epochs) <= 1, f"a view shows several epochs: {epochs}"
        now = int(epochs.pop()) if epochs else 0
        assert now >= seen
        assert len(found) == now * 500
        seen = now


def run_all(*processes: multiprocessing.process.BaseProcess) -> list[int | None]:
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def test_processes_read_whole_epochs_while_another_makes_the_store_grow(tmp_path: Path):
    path, spawn = str(tmp_path / "shared"), multiprocessing.get_context("spawn")
    LmdbStore(path).close()
    held = spawn.Process(target=read_until, args=(path, 20, False))
    opened_again = spawn.Process(target=read_until, args=(path, 20, True))
    writer = spawn.Process(target=write_growing, args=(path, 20))
    assert run_all(held, opened_again, writer) == [0, 0, 0]
    store = LmdbStore(path)
    assert store.bytes_used() > 4 << 20
    assert store.version() == Version("job", 20, "c")
    store.close()


def write_own(path: str, name: str, epochs: int) -> None:
    store = LmdbStore(path)
    for epoch in range(epochs):
        entries = {b"\1%s%d-%d" % (name.encode(), epoch, i): b"x" * PAYLOAD for i in range(300)}
        store.apply([Edits(entries)], Version("job", epoch, name))


def test_two_processes_may_write_and_grow_one_store(tmp_path: Path):
    path, spawn = str(tmp_path / "shared"), multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_own, args=(path, name, 30)) for name in "ab"]
    assert run_all(*writers) == [0, 0]
    store = LmdbStore(path)
    assert len(contents(store)) == 2 * 30 * 300
    store.close()


def hold(path: str, ready: str) -> None:
    with LmdbStore(path).reader() as reader:
        next(reader.scan(FIRST, LAST))
        Path(ready).touch()
        time.sleep(60)


def test_a_reader_that_was_killed_does_not_hold_old_pages(tmp_path: Path):
    path, ready = str(tmp_path / "shared"), tmp_path / "ready"
    store = LmdbStore(path)
    store.apply([Edits(numbered(1_000, b"x" * 500))], BEGIN)
    size = store.bytes_used()
    store.close()
    child = multiprocessing.get_context("spawn").Process(target=hold, args=(path, str(ready)))
    child.start()
    while not ready.exists():
        assert child.is_alive()
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    store = LmdbStore(path)
    for epoch in range(20):
        store.apply([Edits(numbered(1_000, b"%03d" % epoch + b"y" * 500))], NEXT)
    assert store.bytes_used() < 4 * size
    store.close()


def test_a_forked_process_opens_files_of_its_own(tmp_path: Path):
    script = """
        import os, sys
        from midstream.state.stores.lmdb import LmdbStore
        from midstream.state.stores.contract import Version
        from tests.support.edits import Edits

        path = sys.argv[1]
        LmdbStore(path).apply([Edits({b"\\1a": b"parent"})], Version("job", 0, "c"))
        child = os.fork()
        if child == 0:
            LmdbStore(path).apply([Edits({b"\\1b": b"child"})], Version("job", 1, "c"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with LmdbStore(path).reader() as reader:
            assert reader.get_many([b"\\1a", b"\\1b"]) == [b"parent", b"child"]
    """
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "shared")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Give a snapshot of more than a megabyte."""
    store = in_lmdb(tmp_path, numbered(2_000, b"x" * 700))
    path = tmp_path / "snapshot"
    store.snapshot(str(path))
    store.close()
    return path


@pytest.mark.parametrize("in_place", [False, True], ids=["copied", "in place"])
@pytest.mark.parametrize("kept", [0, 1, 4_095, 4_096, 8_192, 0.5, -4_096, -1])
def test_a_file_that_was_cut_off_is_refused(snapshot: Path, kept: float, in_place: bool):
    size = snapshot.stat().st_size
    os.truncate(snapshot, int(size * kept if 0 < kept < 1 else kept if kept >= 0 else size + kept))
    with pytest.raises(StateError, match=f"{snapshot.name} is damaged or cut off"):
        LayeredStore(str(snapshot), str(snapshot) + ".layer") if in_place else LmdbStore(str(snapshot))


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "other"
    path.write_bytes(random.Random(0).randbytes(100_000))
    with pytest.raises(StateError, match="other is damaged"):
        LmdbStore(str(path))


def test_a_version_that_cannot_be_read_is_refused(tmp_path: Path):
    path = str(tmp_path / "store")
    store = LmdbStore(path)
    with store._env.begin(write=True) as transaction:
        transaction.put(lmdb_store.META, b"\xc1")
    with pytest.raises(StateError, match="version"):
        store.version()
    store.close()
