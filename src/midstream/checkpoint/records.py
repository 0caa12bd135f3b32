"""Every durable record: what the checkpoint is, what an epoch decided, changed and committed, where changes stand.

Plain data, written by the journal and by the tasks of slots. A field that is added has a default, so that what was
written before can be read; any other change needs another `FORMAT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from midstream.plan.window_regimes import Regime

FORMAT = 5


NEVER = -1  # the epoch of a change that there was not


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is: written once."""

    format: int
    job: str
    groups: int
    store: str = "mdb"  # the format of its snapshots: which kind of store writes and reads them


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
    groups: tuple[tuple[int, int, int], ...]  # (group, changes, epoch of its change before), as they lie in the file


class RunRef(msgspec.Struct, frozen=True, array_like=True):
    """A run, and the groups whose state it is still a part of."""

    path: str
    groups: tuple[tuple[int, int], ...]  # (group, entries)


class SnapshotRef(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of a group as of a committed epoch."""

    epoch: int
    commit: str
    path: str
    size: int
    checksum: int


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    """What one slot has put aside in one epoch."""

    epoch: int
    clock: int
    seed: str
    watermark: int | None
    before: int | None = None  # the watermark of the epoch before
    groups: tuple[int, ...]  # that sit it out
    path: str  # their rows
    form: str = ""  # in which they were sent


class Report(msgspec.Struct, kw_only=True):
    """What a slot says of its epoch."""

    operator: str
    slot: int
    groups: list[tuple[int, int]] = []  # (group, changes), in the order of the rows
    rows: int = 0
    keys: int = 0
    hottest: tuple[int, str] = (0, "")  # the rows of the key that had most, and the key
    heat: dict[int, int] = {}  # group -> rows that came for it, also those that were put aside
    deadlines: dict[int, tuple[int | None, int | None]] = {}  # group -> next (event, processing) deadline
    snapshots: list[tuple[int, int, str, str, int, int]] = []  # group, epoch, commit, path, size, checksum
    bytes: int = 0  # of keys and values
    content: int = 0  # a checksum of keys and values: the same for every attempt of a deterministic task
    place: str = ""  # the executor, on a cluster
    accessed: int = 0  # groups that were looked into
    restored: int = 0  # of them, those that had to be restored
    sizes: dict[int, tuple[int, int]] = {}  # group -> entries and bytes, of those, before the epoch
    fetched: list[int] = []  # groups of another slot that are here now, up to the epoch before
    in_place: int = 0  # groups that are read where they are stored
    deferred: Deferred | None = None  # what was put aside
    errors: int = 0  # rows and timers that the function failed on, and that were put aside
    succeeded: int = 0  # where that may be: calls that did not fail
    late: int = 0  # rows that came too late for a window, or have no time
    watermark: int | None = None  # of the epoch
    digests: dict[int, int] = {}  # group -> what was made of it, of groups that two slots process
    latest: int | None = None  # of windows: the start of the latest pane, or window, that had rows
    caught_up: list[int] = []  # groups that have made up for all they had missed
    copied: int = 0  # bytes of state that came from the durable store
    times: dict[str, float] = {}  # seconds per part of the task
    run: list[tuple[int, int, int]] | None = None  # the file is one: (group, entries, older runs that are merged in it)
    failure: str = ""  # the traceback of an exception in the user's code; the rest says nothing then


@dataclass(frozen=True, slots=True)
class Staged:
    """What was staged, as the commit record names it: plain data."""

    sink: str
    job: str
    epoch: int
    location: str  # directory: local path or URI
    files: tuple[str, ...]  # relative to `location`, only those with rows; empty: an epoch without rows
    commit: str = ""  # the id of the commit record, once there is one: 16 hexadecimal digits
    target: str = ""  # a digest of the sink's configuration, as the commit record has it


class Delivered(msgspec.Struct, frozen=True, array_like=True):
    """The newest epoch with rows that a sink was given."""

    epoch: int
    commit: str  # "": published by a version that did not write it down
    target: str = ""  # a digest of the sink's configuration: of another target nothing is known


class OperatorState(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit record says of one keyed operator; `None` stands for "never"."""

    born: int = 0  # the first epoch that had it: what an operator of the same id left before is none of its business
    backlog: tuple[Deferred, ...] = ()  # rows that wait for the state of their group, oldest epoch first
    hold: dict[str, int] = {}  # while some wait: the event times that operators behind this one may know of

    logs: tuple[LogRef, ...] = ()
    changed: tuple[tuple[int, str] | None, ...] = ()  # group -> (epoch, commit) of its last change
    snapshots: tuple[SnapshotRef | None, ...] = ()  # group -> its newest snapshot
    runs: tuple[RunRef, ...] | None = None  # in a store of runs: all that makes up the state, the newest first
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
    delivered: dict[str, Delivered] = {}  # sink -> its newest epoch with rows, of those before this one
    event_times: dict[str, int] = {}  # watermark operator -> greatest event time seen, microseconds
    seen: dict[str, int] = {}  # watermark operator -> the clock when it last had rows, or was first known
    final: bool = False  # the input has ended: no epoch follows
    written: str = ""


class Phase(Enum):
    """Where a modification stands."""

    SUBMITTED = "Submitted"  # nothing has been looked at
    VALIDATED = "Validated"  # ids, wiring, schemas, keys and state fit
    PREPARED = "Prepared"  # the new code has run on rows of the last epochs, with throw-away state
    ARMED = "Armed"  # the new plan is journalled and is applied at the next epoch
    APPLIED = "Applied"  # an epoch has been committed under the new plan
    MOVING = "Moving"  # groups are on their way to other executors
    COMPLETED = "Completed"
    REJECTED = "Rejected"  # the running plan was never touched
    CANCELLED = "Cancelled"  # somebody took it back before it was applied
    ROLLED_BACK = "RolledBack"  # the first epoch failed under the new plan and was run again under the old one
    FAILED = "Failed"  # the job or the driver ended before it was applied

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self in _FINAL


_FINAL = frozenset({Phase.COMPLETED, Phase.REJECTED, Phase.CANCELLED, Phase.ROLLED_BACK, Phase.FAILED})


class Cut(msgspec.Struct, frozen=True):
    """Where the new plan begins: rows of this epoch, after these source offsets, are the first that it saw."""

    epoch: int
    offsets: dict[str, str]  # source -> where it stood at the end of the epoch before, as Spark writes that


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A modification as journalled."""

    number: int
    what: str
    phase: Phase = Phase.SUBMITTED
    base: int = 0  # the plan version that it changes
    version: int = 0  # the plan version that it makes, 0 before it has one
    cut: Cut | None = None
    error: str = ""
    rehearsed: int = 0  # rows that the dry run was tried on
    note: str = ""  # what is worth knowing besides
    tries: int = 0  # how often an epoch was begun under the new plan, none committed
    durations: dict[str, float] = {}  # phase -> seconds that it took to reach it from the one before
