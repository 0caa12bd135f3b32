"""The path of state through change logs, snapshots, caches, retention and savepoints, against a dictionary.

A toy driver runs epochs as the engine does, without Spark: its tasks write change logs, its commit records name them.
Everything may go wrong around it: epochs that are dropped, caches that are behind, deleted, cut off, of another job,
of another boot or of another history. Whatever happens, what is read is what the dictionary holds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from midstream.housekeeping import Housekeeping
from midstream.journal import Commit, Journal, LogRef, OperatorState, SnapshotRef
from midstream.plan import StateField
from midstream.state import cache as cache_module
from midstream.state import forms
from midstream.state.cache import Cache, Head, checksum_of, discard_other_boots, logs_of
from midstream.state.changelog import LogWriter, Report
from midstream.state.keys import KeyCodec
from midstream.state.lmdb_store import LmdbStore, close_environment
from midstream.state.portable import PortableFunction
from midstream.state.store import FIRST, LAST, GroupStore, Version
from midstream.storage import Storage, commit_file, log_directory, snapshot_directory
from tests.edits import Edits

OPERATOR = "sums"
HOSTS = ("one", "two")
RECENT = 2  # epochs whose logs a task is told of; older ones it reads from the store

KEYS = pa.schema([("user", pa.string())])
FIELDS = (
    StateField(name="text", kind="value", type="string"),
    StateField(name="seen", kind="map", type="bigint", key_type="string"),
)
TYPES = pa.schema([("text", pa.string()), ("seen", pa.int64()), ("seen key", pa.string())])

Model = dict[str, dict[bytes, bytes]]  # user -> entry -> value
Epoch = dict[str, dict[bytes, bytes | None]]  # user -> entry -> value, None deletes
Drawn = list[tuple[Any, ...]]


def encoded(user: str) -> bytes:
    key: bytes = KeyCodec(KEYS).encode([pa.array([user])])[0].as_py()
    return key


def group_of(user: str, groups: int) -> int:
    return zlib.crc32(user.encode()) % groups


def contents(store: GroupStore) -> dict[bytes, bytes]:
    with store.reader() as reader:
        return dict(reader.scan(FIRST, LAST))


# --- what is drawn --------------------------------------------------------------------------------------------------

LONG = {"long": "l" * 520, "longer": "l" * 520 + "o"}  # what a store cannot hold as it is
users = st.sampled_from(["", "ann", "bob", "cid", "dan", "eve", *LONG])
texts = st.tuples(st.just("text"), users, st.text(max_size=3) | st.none())
seen = st.tuples(st.just("seen"), users, st.sampled_from(["x", "y", "long"]), st.integers(-5, 5) | st.none())
timers = st.tuples(st.just("timer"), users, st.integers(-3, 3), st.sampled_from(["set", None]))
edits = st.lists(texts | seen | timers, max_size=6)  # values, entries of a map, timers; None deletes


def as_entries(drawn: Drawn) -> Epoch:
    """The changes of an epoch as a store sees them."""
    found: Epoch = {}
    pack = msgspec.msgpack.encode
    for kind, name, *what, value in drawn:
        user = LONG.get(name, name)
        key = encoded(user)
        if kind == "text":
            entry, stored = forms.record_key(key), pack([value, None])
        elif kind == "seen":
            entry, stored = forms.field_prefix(1, key) + pack(LONG.get(what[0], what[0])), pack((value, 0))
        else:
            entry, stored = bytes((forms.EVENT,)) + forms.deadline_bytes(what[0]) + key, b"1"
        found.setdefault(user, {})[entry] = None if value is None else stored
    return found


# --- the toy driver -------------------------------------------------------------------------------------------------


@dataclass
class Driver:
    """Does to a checkpoint what the engine does, for one operator."""

    checkpoint: str
    job: str
    groups: int
    keep: int
    last: Commit | None = None
    recent: deque[Commit] = field(default_factory=lambda: deque(maxlen=RECENT))

    def __post_init__(self) -> None:
        self.storage = Storage(self.checkpoint)
        self.journal = Journal(self.storage)
        self.housekeeping = Housekeeping(self.journal, self.keep, 0)
        self.last = self.journal.newest_commit()
        if self.last is not None:
            for epoch in range(max(self.last.epoch - RECENT + 1, 0), self.last.epoch):
                if self.storage.exists(commit_file(epoch)):
                    self.recent.append(self.journal.commit(epoch))
            self.recent.append(self.last)
            self.housekeeping.sweep(self.last)

    @property
    def state(self) -> OperatorState:
        return self.last.operators.get(OPERATOR, OperatorState()) if self.last is not None else OperatorState()

    def cache(self, directory: str, *, in_place: bool) -> Cache:
        head = Head(
            job=self.job,
            operator=OPERATOR,
            checkpoint=self.checkpoint,
            cache=directory,
            epoch=self.last.epoch if self.last is not None else -1,
            changed=self.state.changed or (None,) * self.groups,
            recent=tuple(logs_of(commit, OPERATOR) for commit in self.recent),
            in_place=in_place,
        )
        return Cache(head)

    def run(self, epoch: Epoch, cache: Cache, snapshots: set[int]) -> list[tuple[str, Report]]:
        """Write the change logs of an epoch, one per slot: what tasks do."""
        number, run = (self.last.epoch + 1 if self.last is not None else 0), os.urandom(4).hex()
        found = []
        for slot in range(2):
            log, report = LogWriter(), Report(operator=OPERATOR, slot=slot)
            changes: dict[int, dict[bytes, bytes | None]] = {}
            for user, entries in epoch.items():
                changes.setdefault(group_of(user, self.groups), {}).update(entries)
            for group in sorted(group for group in changes if group % 2 == slot):
                entries = dict(sorted(changes[group].items()))
                log.add(group, list(entries), list(entries.values()))
            for group in sorted(group for group in snapshots if group % 2 == slot and group < self.groups):
                taken = cache.snapshot(group)
                if taken is not None:
                    report.snapshots.append((group, *msgspec.structs.astuple(taken[1])))
            path = log.write(self.storage, log_directory(OPERATOR, number, run), report)
            found.append((path, report))
        return found

    def commit(self, found: list[tuple[str, Report]]) -> None:
        """Make an epoch durable, and tidy up."""
        id, epoch = os.urandom(8).hex(), (self.last.epoch + 1 if self.last is not None else 0)
        changed = list(self.state.changed or (None,) * self.groups)
        snapshots = list(self.state.snapshots or (None,) * self.groups)
        logs = []
        for path, report in found:
            if report.groups:
                logs.append(LogRef(report.slot, path, 0, tuple(report.groups)))
            for group, _ in report.groups:
                changed[group] = (epoch, id)
            for group, *reference in report.snapshots:
                snapshots[group] = SnapshotRef(*reference)
        state = OperatorState(logs=tuple(logs), changed=tuple(changed), snapshots=tuple(snapshots))
        self.last = Commit(
            epoch=epoch,
            id=id,
            parent=self.last.id if self.last is not None else "",
            version=1,
            clock=0,
            offsets=(),
            operators={OPERATOR: state},
        )
        self.journal.write_commit(self.last)
        self.recent.append(self.last)
        self.housekeeping.after(self.last, {OPERATOR: [report for _, report in found]})


def through_a_savepoint(driver: Driver, scratch: str, checkpoint: str, groups: int) -> Driver:
    """Write all state as tables, and make a new checkpoint, with other groups, of the tables."""
    assert driver.last is not None
    portable = PortableFunction(forms.Form(OPERATOR, FIELDS, {f.name: f.type for f in TYPES}), KEYS, TYPES)
    loaded: list[dict[bytes, bytes]] = [{} for _ in range(groups)]
    cache = driver.cache(scratch, in_place=True)
    for group in range(driver.groups):
        store = cache.bring(group)
        with store.reader() as reader:
            tables = portable.dump(reader)
        store.close()
        for name, table in tables.items():
            for batch in table.to_batches():
                for i, user in enumerate(batch.column("user").to_pylist()):
                    loaded[group_of(user, groups)].update(portable.load(name, batch.slice(i, 1)))
    version = Version(os.urandom(8).hex(), driver.last.epoch, os.urandom(8).hex())
    changed: list[Any] = [None] * groups
    snapshots: list[Any] = [None] * groups
    for group, entries in enumerate(loaded):
        if entries:
            raw, local = f"{scratch}/{group}.raw", f"{scratch}/{group}.mdb"
            LmdbStore(raw).apply([Edits(entries)], version)
            LmdbStore(raw).snapshot(local)
            close_environment(raw)
            checksum, size = checksum_of(local)
            path = f"{snapshot_directory(OPERATOR, group)}/{version.epoch:012}-{os.urandom(4).hex()}.mdb"
            Storage(checkpoint).upload(local, path)
            changed[group] = (version.epoch, version.commit)
            snapshots[group] = SnapshotRef(version.epoch, version.commit, path, size, checksum)
    state = OperatorState(changed=tuple(changed), snapshots=tuple(snapshots))
    record = Commit(
        epoch=version.epoch,
        id=version.commit,
        parent="",
        version=1,
        clock=0,
        offsets=(),
        operators={OPERATOR: state},
    )
    Journal(Storage(checkpoint)).write_commit(record)
    return Driver(checkpoint, version.job, groups, driver.keep)


# --- the machine ----------------------------------------------------------------------------------------------------

some_groups = st.sets(st.integers(0, 3), max_size=4)
hosts = st.sampled_from(HOSTS)


class StateOfAJob(RuleBasedStateMachine):
    """Whatever happens, what is read is what the dictionary holds."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="midstream-model-", dir="/tmp")
        self.model: Model = {}
        self.backup: tuple[str, str, int, Model] | None = None  # directory, job, groups, model
        self.models: dict[str, Model] = {}  # commit id -> what it holds
        self.checked = True
        self.boots = 0

    @initialize(groups=st.integers(1, 4), keep=st.integers(1, 3))
    def start(self, groups: int, keep: int) -> None:
        self.driver = Driver(self.new("checkpoint"), "job-0", groups, keep)

    def teardown(self) -> None:
        for host in HOSTS:
            self.bring(host, {0, 1, 2, 3}, in_place=False)
        cache_module._boot = ""
        self.close(self.root)
        shutil.rmtree(self.root)

    def new(self, name: str) -> str:
        return os.path.join(self.root, f"{name}-{os.urandom(4).hex()}")

    def host(self, name: str) -> str:
        return os.path.join(self.root, "hosts", name)

    def close(self, directory: str) -> None:
        """Close what this process has open below a directory, as if its tasks had ended."""
        from midstream.state import lmdb_store

        for path in [path for path in lmdb_store._open if path.startswith(directory)]:
            close_environment(path)

    def expected(self, group: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for user, entries in self.model.items():
            if group_of(user, self.driver.groups) == group:
                found.update(entries)
        return found

    def committed(self) -> None:
        """Remember what the newest commit holds."""
        assert self.driver.last is not None
        self.models[self.driver.last.id] = dict(self.model)
        self.checked = False

    def check(self, cache: Cache, group: int) -> None:
        assert contents(cache.bring(group)) == self.expected(group)

    # --- what a job does ---

    @rule(epochs=st.lists(edits, min_size=1, max_size=4), host=hosts, snapshots=some_groups, in_place=st.booleans())
    def commit_epochs(self, epochs: list[Drawn], host: str, snapshots: set[int], in_place: bool) -> None:
        for epoch in map(as_entries, epochs):
            found = self.driver.run(epoch, self.driver.cache(self.host(host), in_place=in_place), snapshots)
            self.driver.commit(found)
            for user, entries in epoch.items():
                self.model[user] = Edits(entries).applied_to(self.model.get(user, {}))
            self.committed()
            snapshots = set()

    @rule(drawn=edits, host=hosts, snapshots=some_groups)
    def drop_an_epoch(self, drawn: Drawn, host: str, snapshots: set[int]) -> None:
        self.driver.run(as_entries(drawn), self.driver.cache(self.host(host), in_place=False), snapshots)

    @rule(count=st.integers(1, 4), snapshots=st.just({0, 1, 2, 3}) | some_groups)
    def be_idle(self, count: int, snapshots: set[int]) -> None:
        """Let retention delete all that it may."""
        for _ in range(count):
            cache = self.driver.cache(self.host("one"), in_place=False)
            self.driver.commit(self.driver.run({}, cache, snapshots))
            self.committed()
            snapshots = set()

    @rule(host=hosts, groups=some_groups, in_place=st.booleans())
    def bring(self, host: str, groups: set[int], in_place: bool) -> None:
        cache = self.driver.cache(self.host(host), in_place=in_place)
        for group in groups:
            if group < self.driver.groups:
                self.check(cache, group)

    @rule()
    def restart(self) -> None:
        driver = self.driver
        self.driver = Driver(driver.checkpoint, driver.job, driver.groups, driver.keep)

    # --- what happens to its caches ---

    @rule(host=hosts)
    def lose_the_cache(self, host: str) -> None:
        self.close(self.host(host))
        shutil.rmtree(self.host(host), ignore_errors=True)

    def file_of(self, host: str, group: int) -> str | None:
        directory = self.driver.cache(self.host(host), in_place=False).directory
        pointer = os.path.join(directory, f"{group}.current")
        if not os.path.islink(pointer):
            return None
        path = os.path.join(directory, os.readlink(pointer))
        path += ".layer" if path.endswith(".base") else ""
        return path if os.path.exists(path) else None

    @rule(host=hosts, kept=st.sampled_from([None, 0, 100, 4096, 8192, 12288, 600_000]), groups=some_groups)
    def lose_files_of_the_cache_or_their_ends(self, host: str, groups: set[int], kept: int | None) -> None:
        for path in filter(None, (self.file_of(host, group) for group in groups)):
            close_environment(path)
            if kept is None:
                os.unlink(path)
            else:
                os.truncate(path, min(kept, os.path.getsize(path)))

    @rule(host=hosts, group=st.integers(0, 3), same_commit=st.booleans())
    def find_the_file_of_another_job_in_the_cache(self, host: str, group: int, same_commit: bool) -> None:
        path = self.file_of(host, group)
        if path is not None:
            changed = dict(enumerate(self.driver.state.changed)).get(group)
            close_environment(path)
            os.unlink(path)
            version = Version("another", *(changed if changed and same_commit else (0, "c")))
            LmdbStore(path).apply([Edits({b"\1rubbish": b"\1rubbish"})], version)

    @rule()
    def boot_the_machine(self) -> None:
        self.close(self.root)
        self.boots += 1
        cache_module._boot = f"boot-{self.boots}"
        for host in HOSTS:
            discard_other_boots(self.host(host), self.driver.job)

    # --- what happens to its checkpoint ---

    @rule()
    def back_up_the_checkpoint(self) -> None:
        driver = self.driver
        if driver.last is not None:
            copy = self.new("backup")
            shutil.copytree(driver.checkpoint, copy)
            self.backup = (copy, driver.job, driver.groups, dict(self.model))

    @precondition(lambda self: self.backup is not None)
    @rule()
    def go_back_to_the_backup(self) -> None:
        """The history goes on from an older commit, and will differ from what the caches hold."""
        assert self.backup is not None
        copy, job, groups, model = self.backup
        checkpoint = self.driver.checkpoint
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        self.driver = Driver(checkpoint, job, groups, self.driver.keep)
        self.model = dict(model)
        self.committed()

    @precondition(lambda self: self.driver.last is not None)
    @rule(epochs=st.integers(1, 2))
    def go_back_to_a_kept_epoch(self, epochs: int) -> None:
        """By hand: the newest records are deleted; as many epochs as are kept stay restorable."""
        driver = self.driver
        assert driver.last is not None
        target = driver.last.epoch - epochs
        if epochs < driver.keep and driver.storage.exists(commit_file(target)):
            for epoch in range(target + 1, driver.last.epoch + 1):
                driver.storage.delete(commit_file(epoch))
            self.restart()
            assert self.driver.last is not None
            self.model = dict(self.models[self.driver.last.id])
            self.committed()

    @precondition(lambda self: self.driver.last is not None)
    @rule(groups=st.integers(1, 4))
    def go_through_a_savepoint(self, groups: int) -> None:
        scratch, checkpoint = self.new("scratch"), self.new("checkpoint")
        os.makedirs(scratch)
        before = self.driver.checkpoint
        self.driver = through_a_savepoint(self.driver, scratch, checkpoint, groups)
        self.close(scratch)
        shutil.rmtree(scratch)
        shutil.rmtree(before)
        self.backup = None
        self.committed()

    # --- what always holds ---

    @invariant()
    def a_new_host_reads_what_the_dictionary_holds(self) -> None:
        if self.checked:
            return
        scratch = self.new("scratch")
        cache = self.driver.cache(scratch, in_place=self.driver.last is not None and self.driver.last.epoch % 2 == 0)
        for group in range(self.driver.groups):
            self.check(cache, group)
        self.close(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        self.checked = True


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug in these tests."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


TestStateOfAJob = StateOfAJob.TestCase
TestStateOfAJob.settings = settings(
    max_examples=50,
    stateful_step_count=25,
    phases=[Phase.generate],  # shrinking takes minutes: add Phase.shrink when one fails
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
