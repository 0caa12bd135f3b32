"""After the commit: what no kept epoch needs is deleted, what one needs is not, also over a restart."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import commit_file, home_of, log_directory
from midstream.checkpoint.records import Report
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from midstream.state.changelog import LogWriter
from tests.support.histories import GROUPS, HOME, Changes, History, contents
from tests.support.object_store import Gate

A, B = b"\1a", b"\1b"


class Kept(History):
    """A history with its housekeeping; remembers what each epoch held."""

    def __init__(self, directory: Path, keep: int) -> None:
        super().__init__(directory)
        self.keep = keep
        self.housekeeping = Housekeeping(Journal(self.storage), keep, 0)
        self.held: list[list[dict[bytes, bytes]]] = []  # epoch -> group -> entries

    def run(self, changes: dict[int, Changes], snapshots: tuple[int, ...] = ()) -> None:
        commit = self.epoch(changes, snapshots)
        before = self.held[-1] if self.held else [{} for _ in range(GROUPS)]
        now = [{**before[group], **changes.get(group, {})} for group in range(GROUPS)]
        self.held.append([{key: value for key, value in held.items() if value is not None} for held in now])
        self.housekeeping.after(commit, {"sums": [self.reports[-1]]})

    def restart(self) -> None:
        self.housekeeping = Housekeeping(Journal(self.storage), self.keep, 0)
        self.housekeeping.sweep(self.commits[-1])

    def records(self) -> list[int]:
        return [int(name.split(".")[0]) for name in self.storage.list("commits")]

    def logs(self) -> list[int]:
        names = self.storage.list(f"state/{HOME}/log")
        return [int(name) for name in names if self.storage.list(f"state/{HOME}/log/{name}/run")]

    def snapshots(self, group: int) -> list[str]:
        return self.storage.list(f"state/{HOME}/snapshot/{group:06}")

    def check_every_kept_epoch(self) -> None:
        newest = len(self.commits) - 1
        for epoch in range(max(newest - self.keep + 1, 0), newest + 1):
            cache = self.cache(f"host {newest} {epoch}", recent=0, epoch=epoch)
            assert [contents(cache.bring(group)) for group in range(GROUPS)] == self.held[epoch], epoch


@pytest.mark.parametrize("keep", [1, 3])
def test_as_many_epochs_as_are_kept_stay_restorable(tmp_path: Path, keep: int):
    history = Kept(tmp_path, keep)
    for number in range(24):
        changes: dict[int, Changes] = {0: {A: b"%d" % number}}
        if number % 7 == 0:
            changes[1] = {A: b"%d" % number, b"\1%d" % number: b"x"}
        if number in (0, 12):
            changes[2] = {B: b"%d" % number}
        due = (0,) if number % 5 == 4 else (1,) if number % 11 == 10 else (2,) if number in (2, 20) else ()
        history.run(changes, due)
        history.check_every_kept_epoch()
        if number % 6 == 5:
            history.restart()
            history.check_every_kept_epoch()
    assert len(history.records()) < 24
    assert history.logs() == history.records()


def test_records_and_logs_that_no_kept_epoch_needs_are_deleted(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}})
    history.run({}, (0,))
    for _ in range(4):
        history.run({})
    assert history.records() == [5, 6]
    assert history.logs() == [5, 6]


def test_a_group_holds_only_the_epochs_from_its_snapshot_to_its_last_change(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    for _ in range(6):
        history.run({})
    assert history.records() == [0, 1, 6, 7]
    history.check_every_kept_epoch()


def test_a_snapshot_is_deleted_when_no_kept_epoch_names_it(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    history.run({}, (0,))
    assert len(history.snapshots(0)) == 2
    history.run({})
    assert len(history.snapshots(0)) == 2
    history.run({})
    assert history.snapshots(0) == [Path(history.snapshot_of(0).path).name]


def test_a_restart_does_not_lose_sight_of_what_is_to_be_deleted(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    history.run({}, (0,))
    history.restart()
    assert len(history.snapshots(0)) == 2
    for _ in range(3):
        history.run({})
    assert history.snapshots(0) == [Path(history.snapshot_of(0).path).name]
    assert history.records() == [4, 5]


def test_after_a_restart_what_no_record_names_is_deleted_and_nothing_else(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {A: b"0"}, 1: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    log = LogWriter()
    log.add(0, [A], [b"never"])
    failed = log.write(history.storage, log_directory(HOME, 1, "failed"), Report(operator="sums", slot=0))
    unfinished = log.write(history.storage, log_directory(HOME, 2, "run"), Report(operator="sums", slot=0))
    orphan = history.cache().snapshot(0)
    assert orphan is not None
    named = [history.log_of(0), history.log_of(1), Path(history.storage.path(history.snapshot_of(0).path))]
    history.restart()
    assert [history.storage.exists(path) for path in (failed, unfinished, orphan[1].path)] == [False, False, False]
    assert [path.exists() for path in named] == [True, True, True]
    history.check_every_kept_epoch()


def tree(history: Kept) -> list[str]:
    root = Path(history.storage.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_record_that_a_group_needs_is_missed_before_anything_is_deleted(tmp_path: Path, epoch: int):
    history = Kept(tmp_path, keep=5)
    for number in range(4):
        history.run({0: {b"\1%d" % number: b"x"}})
    history.storage.delete(commit_file(epoch))
    before = tree(history)
    with pytest.raises(CheckpointError, match=f"not whole: the record of epoch {epoch} is missing.*from a copy"):
        history.restart()
    assert tree(history) == before


def test_a_record_of_another_history_is_refused(tmp_path: Path):
    history = Kept(tmp_path, keep=5)
    for number in range(3):
        history.run({0: {A: b"%d" % number}})
    Journal(history.storage).write_commit(msgspec.structs.replace(history.commits[1], id="another"))
    with pytest.raises(CheckpointError, match="epoch 2 does not follow that of epoch 1"):
        history.restart()


def test_a_record_that_no_group_needs_may_be_gone(tmp_path: Path):
    history = Kept(tmp_path, keep=5)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}})
    history.run({}, (0,))
    history.storage.delete(commit_file(0))
    history.restart()
    assert contents(history.cache("new", recent=0).bring(0)) == {A: b"1"}


def test_what_operators_left_that_are_forgotten_is_deleted_after_a_restart(tmp_path: Path):
    history = Kept(tmp_path, keep=5)
    history.run({0: {A: b"0"}})
    for home in (home_of("sums", 7), home_of("gone", 0)):
        history.storage.write(f"{log_directory(home, 8, 'run')}/x.arrow", b"")
    history.restart()
    assert history.storage.list("state/sums") == ["000000000000"]
    assert history.storage.list("state/gone") == []


class OnS3(Kept):
    """A history on an object store, where no lease keeps other drivers away."""

    @property
    def storage(self) -> Storage:
        return Storage(f"s3://{self.directory.name}/checkpoint")


def test_where_there_is_no_lease_a_start_deletes_nothing_before_its_first_commit(tmp_path: Path, object_store: Gate):
    bucket = tmp_path / f"bucket-{os.urandom(6).hex()}"
    object_store.make_bucket(bucket.name)
    history = OnS3(bucket, keep=2)
    history.run({0: {A: b"0"}, 1: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    log = LogWriter()
    log.add(0, [A], [b"about to be committed"])
    pending = log.write(history.storage, log_directory(HOME, 2, "other"), Report(operator="sums", slot=0))
    orphan = history.cache().snapshot(0)
    assert orphan is not None
    paths = (pending, orphan[1].path, "spool/out/000000000002/other/rows")
    history.storage.write(paths[2], b"")
    born_now = f"{log_directory(home_of('new', 2), 2, 'other')}/x.arrow"
    history.storage.write(born_now, b"of a run that died")
    history.restart()
    again = f"{log_directory(home_of('new', 2), 2, 'again')}/x.arrow"
    history.storage.write(again, b"of the same epoch, run again, in the same directory")
    history.housekeeping.discard("spool", 1)
    history.housekeeping.drop_logs([HOME], 2)
    assert [history.storage.exists(path) for path in paths] == [True, True, True]
    history.run({0: {A: b"2"}})
    assert [history.storage.exists(path) for path in paths] == [False, False, False]
    assert [history.storage.exists(path) for path in (born_now, again)] == [False, True]
    history.check_every_kept_epoch()


def test_nothing_is_deleted_while_a_savepoint_reads(tmp_path: Path):
    history = Kept(tmp_path, keep=1)
    history.run({0: {A: b"0"}})
    history.run({0: {A: b"1"}}, (0,))
    history.housekeeping.pin()
    history.housekeeping.pin()
    pinned = len(history.commits) - 1
    for _ in range(4):
        history.run({0: {A: b"x"}}, (0,))
    history.housekeeping.unpin()
    history.run({})
    cache = history.cache("savepoint", recent=0, epoch=pinned)
    assert contents(cache.bring(0)) == history.held[pinned][0]
    assert history.records() == list(range(len(history.commits)))
    history.housekeeping.unpin()
    history.run({}, (0,))
    history.run({})
    assert history.records() == [len(history.commits) - 1]


def test_snapshots_are_chosen_by_what_was_logged_since(tmp_path: Path):
    history = Kept(tmp_path, keep=2)
    history.run({0: {b"\1%d" % i: b"x" for i in range(9_000)}, 1: {A: b"x"}})
    state = history.commits[-1].operators["sums"]
    assert history.housekeeping.snapshots_due("sums", state, 1) == [0]
    history.run({}, (0,))
    state = history.commits[-1].operators["sums"]
    assert history.housekeeping.snapshots_due("sums", state, 2) == []
