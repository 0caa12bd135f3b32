"""What is written down: the identity of a checkpoint, its plans, the intent and the commit record of each epoch.

The commit record is the only truth: what is durable is exactly what the newest record and its ancestors name.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from midstream import planfile
from midstream import storage as layout
from midstream.errors import CheckpointError
from midstream.feeds import Feed, offsets_of
from midstream.modification import Phase, Record
from midstream.plan import Plan
from midstream.regimes import Regime
from midstream.sinks.base import Staged
from midstream.state.backlog import Deferred
from midstream.storage import Storage

FORMAT = 3
T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is: written once."""

    format: int
    job: str
    groups: int


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided before an epoch ran, so that a replay decides the same."""

    epoch: int
    version: int  # of the plan
    clock: int  # microseconds since 1970
    seed: str


class LogRef(msgspec.Struct, frozen=True, array_like=True):
    """A committed change log."""

    slot: int
    path: str
    size: int
    groups: tuple[tuple[int, int], ...]  # (group, changes), in the order of the file's batches


class SnapshotRef(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of a group as of a committed epoch."""

    epoch: int
    commit: str
    path: str
    size: int
    checksum: int


class OperatorState(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit record says of one keyed operator; `None` stands for "never"."""

    backlog: tuple[Deferred, ...] = ()  # rows that wait for the state of their group, oldest epoch first
    hold: dict[str, int] = {}  # while some wait: the event times that operators behind this one may know of

    logs: tuple[LogRef, ...] = ()
    changed: tuple[tuple[int, str] | None, ...] = ()  # group -> (epoch, commit) of its last change
    snapshots: tuple[SnapshotRef | None, ...] = ()  # group -> its newest snapshot
    deadlines: dict[int, tuple[int | None, int | None]] = {}  # group -> next (event, processing) deadline
    layouts: dict[int, str] = {}  # where a form of the state begins -> that form of keys and values
    top: int = 0  # the first number that no form has used yet
    watermark: int | None = None  # of the epoch: windows that end before it are closed
    latest: int | None = None  # of windows: the start of the latest pane, or window, that ever had rows
    regimes: tuple[Regime, ...] = ()  # which windows are of which shape


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The record that makes an epoch durable."""

    epoch: int
    id: str
    parent: str
    version: int
    clock: int
    offsets: tuple[str, ...]
    operators: dict[str, OperatorState] = {}
    sinks: tuple[Staged, ...] = ()
    event_times: dict[str, int] = {}  # watermark operator -> greatest event time seen, microseconds
    seen: dict[str, int] = {}  # watermark operator -> the clock when it last had rows, or was first known
    final: bool = False  # the input has ended: no epoch follows
    written: str = ""


class Lease:
    """Holds a checkpoint for one driver.

    Promised on a local disk: exact, and released when the process dies. Elsewhere Spark's own offset log is what a
    second driver trips over.
    """

    def __init__(self, storage: Storage) -> None:
        self._file: Any = None
        if not storage.is_local:
            return
        os.makedirs(storage.root, exist_ok=True)
        self._file = open(storage.path(layout.LEASE), "a+")  # noqa: SIM115 - held for the life of the job
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise CheckpointError(
                f"the checkpoint {storage.root} is in use by {holder}: one driver at a time. "
                "Stop that job first, or give this one a checkpoint of its own"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} ({os.path.basename(sys.argv[0]) or 'python'})")
        self._file.flush()

    def release(self) -> None:
        """Give the checkpoint free."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Journal:
    """Reads and writes the records of one checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def identity(self) -> Identity | None:
        """Read what the checkpoint is, `None` if it is new; refuse one of an unknown format."""
        if not self.storage.exists(layout.IDENTITY):
            if self.storage.list(layout.COMMITS) or self.storage.list(layout.SPARK):
                raise CheckpointError(
                    f"{self.storage.root} has files of a job but no {layout.IDENTITY}: it is damaged, or it is a plain "
                    "Spark checkpoint. Give the job an empty directory, or restore the file from a copy"
                )
            return None
        text = self.storage.read(layout.IDENTITY)
        known = _decoded(text, dict[str, Any], self.storage.path(layout.IDENTITY)).get("format")
        if known != FORMAT:
            raise CheckpointError(
                f"the checkpoint {self.storage.root} has format {known}, this Midstream reads format {FORMAT}. "
                "Write a savepoint with the version that made it, and start from that"
            )
        return _decoded(text, Identity, self.storage.path(layout.IDENTITY))

    def create(self, job: str, groups: int) -> Identity:
        """Make a new checkpoint."""
        identity = Identity(format=FORMAT, job=job, groups=groups)
        self.storage.write(layout.IDENTITY, msgspec.json.encode(identity))
        return identity

    def write_plan(self, plan: Plan) -> None:
        """Keep a plan version."""
        self.storage.write(layout.plan_file(plan.version), planfile.encode(plan))

    def feeds(self) -> tuple[Feed, ...]:
        """Read the sources of the query under the job, in Spark's order; none before the first start."""
        if not self.storage.exists(layout.FEEDS):
            return ()
        return _decoded(self.storage.read(layout.FEEDS), tuple[Feed, ...], self.storage.path(layout.FEEDS))

    def write_feeds(self, feeds: tuple[Feed, ...]) -> None:
        """Write down the sources of the query, before it is started."""
        self.storage.write(layout.FEEDS, msgspec.json.encode(feeds))

    def fit_offsets(self, fit: Callable[[str, str], str]) -> int:
        """Rewrite what Spark reads of its offset log at a start: the newest two entries. Gives the newest epoch.

        Spark on a local disk keeps a checksum beside each entry, and reads one that has none.
        """
        known = sorted(int(name) for name in self.storage.list(f"{layout.SPARK}/offsets") if name.isdigit())
        for epoch in known[-2:]:
            path = f"{layout.SPARK}/offsets/{epoch}"
            before = self.storage.read(path).decode()
            after = fit(before, self.storage.path(path))
            if after != before:
                self.storage.delete(f"{layout.SPARK}/offsets/.{epoch}.crc")
                self.storage.write(path, after.encode())
        return known[-1] if known else -1

    def versions(self) -> list[int]:
        """List the plan versions that are kept, in order."""
        return [int(name[1:-5]) for name in self.storage.list(layout.PLANS) if name.endswith(".json")]

    def next_version(self) -> int:
        """Give a number that no plan has had, and none of a modification that came to nothing."""
        return max([0, *self.versions(), *(record.version for record in self.modifications())]) + 1

    def running_plan(self) -> Plan | None:
        """Read the plan that the job ran last: the newest that is not of a modification which was never applied."""
        applied, last = (Phase.APPLIED, Phase.MOVING, Phase.COMPLETED), self.newest_commit()
        not_applied = {record.version for record in self.modifications() if record.phase not in applied}
        not_applied.discard(last.version if last is not None else 0)  # it was, and nobody could write that down
        versions = [version for version in self.versions() if version not in not_applied]
        return self.plan(versions[-1]) if versions else None

    def modifications(self) -> list[Record]:
        """Read the modifications that are kept, oldest first."""
        names = [name for name in self.storage.list(layout.MODIFICATIONS) if name.endswith(".json")]
        paths = [f"{layout.MODIFICATIONS}/{name}" for name in names]
        return [_decoded(self.storage.read(path), Record, self.storage.path(path)) for path in paths]

    def write_modification(self, record: Record) -> None:
        """Write down where a modification stands."""
        self.storage.write(layout.modification_file(record.number), msgspec.json.encode(record))

    def plan(self, version: int) -> Plan:
        """Read a plan version."""
        path = layout.plan_file(version)
        try:
            return planfile.decode(self.storage.read(path))
        except (FileNotFoundError, msgspec.MsgspecError) as error:
            raise CheckpointError(
                f"plan version {version} cannot be read from {self.storage.path(path)}: {error}"
            ) from error

    def intent(self, epoch: int) -> Intent | None:
        """Read what was decided for an epoch, if it was."""
        path = layout.journal_file(epoch)
        if not self.storage.exists(path):
            return None
        return _decoded(self.storage.read(path), Intent, self.storage.path(path))

    def write_intent(self, intent: Intent) -> None:
        """Write down what is decided for an epoch, before it runs."""
        self.storage.write(layout.journal_file(intent.epoch), msgspec.json.encode(intent))

    def commit(self, epoch: int) -> Commit:
        """Read a commit record."""
        path = layout.commit_file(epoch)
        return _decoded(self.storage.read(path), Commit, self.storage.path(path))

    def newest_commit(self) -> Commit | None:
        """Read the newest commit record."""
        names = [name for name in self.storage.list(layout.COMMITS) if name.endswith(".json")]
        return self.commit(layout.epoch_of(names[-1])) if names else None

    def write_commit(self, commit: Commit) -> None:
        """Commit an epoch: one atomic write."""
        self.storage.write(layout.commit_file(commit.epoch), msgspec.json.encode(commit))

    def offsets(self, epoch: int) -> tuple[str, ...]:
        """Read the source offsets that Spark logged for an epoch."""
        path = f"{layout.SPARK}/offsets/{epoch}"
        try:
            return offsets_of(self.storage.read(path).decode())
        except FileNotFoundError as error:
            raise CheckpointError(f"Spark's offset log {self.storage.path(path)} is missing") from error

    def forget(self, epoch: int) -> None:
        """Delete the record and the intent of an epoch."""
        self.storage.delete(layout.commit_file(epoch))
        self.storage.delete(layout.journal_file(epoch))


def _decoded(text: bytes, type: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"{path} is damaged ({error}); restore it from a copy of the checkpoint, or start from a savepoint"
        ) from error
