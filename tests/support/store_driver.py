"""A toy driver over real stores, logs and snapshots, for the model of a job's state."""

from __future__ import annotations

import os
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import commit_file, home_of, log_directory, run_directory
from midstream.checkpoint.records import Commit, LogRef, OperatorState, Report, RunRef, SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.epoch.commit import epoch_of, runs_after
from midstream.operators.tables import PortableFunction
from midstream.plan.plan import StateField
from midstream.state import entries as forms
from midstream.state.cache import Cache
from midstream.state.groups import Groups, groups_of, log_of
from midstream.state.history import Head, logs_of
from midstream.state.keys import KeyCodec
from midstream.state.runs.groups import RunGroups
from midstream.state.runs.writer import RunWriter, write_run
from midstream.state.snapshots import Snapshots
from midstream.state.stores.contract import FIRST, LAST, Readable, Version
from midstream.state.stores.kinds import DEFAULT, RUNS, store_kind
from midstream.state.throttle import Throttle
from tests.support.edits import Edits
from tests.support.run_parts import part_of

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


def contents(store: Readable) -> dict[bytes, bytes]:
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
    store: str = DEFAULT
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
        found = groups_of(self.head(directory, in_place=in_place))
        assert isinstance(found, Cache)
        return found

    def head(self, directory: str, *, in_place: bool) -> Head:
        return Head(
            job=self.job,
            operator=OPERATOR,
            checkpoint=self.checkpoint,
            cache=directory,
            epoch=self.last.epoch if self.last is not None else -1,
            changed=self.state.changed or (None,) * self.groups,
            runs=self.state.runs or (),
            recent=tuple(logs_of(commit, OPERATOR) for commit in self.recent),
            in_place=in_place,
            store=self.store,
        )

    def run(self, epoch: Epoch, cache: Groups, snapshots: set[int]) -> list[tuple[str, Report]]:
        """Write the change logs of an epoch, one per slot, and snapshots, or merged runs: what tasks do."""
        number, run = (self.last.epoch + 1 if self.last is not None else 0), os.urandom(4).hex()
        found = []
        for slot in range(2):
            log, report = log_of(cache.head), Report(operator=OPERATOR, slot=slot)
            changes: dict[int, dict[bytes, bytes | None]] = {}
            for user, entries in epoch.items():
                changes.setdefault(group_of(user, self.groups), {}).update(entries)
            for group in sorted(group for group in changes if group % 2 == slot):
                entries = dict(sorted(changes[group].items()))
                log.add(group, list(entries), list(entries.values()))
            chosen = sorted(group for group in snapshots if group % 2 == slot and group < self.groups)
            if isinstance(cache, RunGroups):
                assert isinstance(log, RunWriter)
                log.older = cache.older(self._counts(chosen))
                chosen = []
            for group in chosen:
                assert isinstance(cache, Cache)
                taken = cache.snapshot(group)
                if taken is not None:
                    report.snapshots.append((group, *msgspec.structs.astuple(taken[1])))
            path = log.write(self.storage, log_directory(home_of(OPERATOR, 0), number, run), report)
            found.append((path, report))
        return found

    def _counts(self, groups: list[int]) -> dict[int, int]:
        """Say how many of its newest runs are merged for each group: one more in each epoch, up to all of them."""
        runs = {group: sum(group in dict(run.groups) for run in self.state.runs or ()) for group in groups}
        assert self.last is not None or not any(runs.values())
        epoch = self.last.epoch if self.last is not None else 0
        return {group: 1 + epoch % count for group, count in runs.items() if count}

    def commit(self, found: list[tuple[str, Report]]) -> None:
        """Make an epoch durable, and tidy up."""
        id, epoch = os.urandom(8).hex(), (self.last.epoch + 1 if self.last is not None else 0)
        changed = list(self.state.changed or (None,) * self.groups)
        snapshots = list(self.state.snapshots or (None,) * self.groups)
        logs = []
        for path, report in found:
            if report.groups:
                links = tuple((group, changes, epoch_of(changed[group])) for group, changes in report.groups)
                logs.append(LogRef(report.slot, path, 0, links))
            for group, _ in report.groups:
                changed[group] = (epoch, id)
            for group, *reference in report.snapshots:
                snapshots[group] = SnapshotRef(*reference)
        state = OperatorState(
            logs=tuple(logs),
            changed=tuple(changed),
            snapshots=tuple(snapshots),
            runs=runs_after(self.state.runs, found),
        )
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
    cache = groups_of(driver.head(scratch, in_place=True))
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
    kind = store_kind(driver.store)
    written = Snapshots(Storage(checkpoint), home_of(OPERATOR, 0), kind.format, Throttle())
    changed: list[Any] = [None] * groups
    snapshots: list[Any] = [None] * groups
    runs: list[RunRef] = []
    for group, entries in enumerate(loaded):
        if entries and driver.store == RUNS:
            stem = f"{run_directory(home_of(OPERATOR, 0))}/{version.epoch}"
            path = write_run(Storage(checkpoint), stem, {group: part_of(entries)}, {})
            changed[group] = (version.epoch, version.commit)
            runs.append(RunRef(path, ((group, len(entries)),)))
        elif entries:
            store = kind.open(f"{scratch}/{group}")
            store.apply([Edits(entries)], version)
            changed[group] = (version.epoch, version.commit)
            snapshots[group] = written.write(group, store, version, f"{scratch}/{group}.snapshot")
            store.close()
    state = OperatorState(
        changed=tuple(changed), snapshots=tuple(snapshots), runs=tuple(runs) if driver.store == RUNS else None
    )
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
    return Driver(checkpoint, version.job, groups, driver.keep, driver.store)
