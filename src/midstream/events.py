"""Events of an epoch, as values: listeners (progress displays, tests, metrics) receive them in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec


class Step(Enum):
    """The steps of an epoch that leave a durable trace, in order."""

    JOURNAL = "journal"  # the plan version, clock and seed of the epoch are journalled
    RUN = "run"  # the Spark jobs: change logs are written, sinks are staged
    COMMIT = "commit"  # the commit record is written
    PUBLISH = "publish"  # the sinks publish


@dataclass(frozen=True, slots=True)
class Before:
    """A step is about to begin."""

    step: Step
    epoch: int


@dataclass(frozen=True, slots=True)
class After:
    """A step is done."""

    step: Step
    epoch: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one sink are staged."""

    epoch: int
    sink: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """An epoch failed and is run again."""

    epoch: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Republish:
    """A sink could not publish a committed epoch, and is tried again."""

    epoch: int
    sink: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Modifying:
    """A modification enters a phase: its record is about to be written, or is written. Sent in its own thread."""

    number: int
    phase: str
    written: bool


@dataclass(frozen=True, slots=True)
class Exchanging:
    """A step of starting or exchanging the query under the job is done, in this order."""

    step: str  # stopped, feeds, offsets, started


@dataclass(frozen=True, slots=True)
class HotKey:
    """The key that had most rows of an operator in an epoch. Of windows: in the pane where it had most."""

    key: str  # its columns as text, each cut after a hundred characters
    rows: int
    share: float  # of the operator's rows


@dataclass(frozen=True, slots=True)
class Progress:
    """The report of a committed epoch."""

    epoch: int
    version: int
    clock: str
    rows: dict[str, int]  # operator id -> rows that reached its slots
    keys: dict[str, int]  # operator id -> keys touched
    watermarks: dict[str, str | None]
    log_bytes: int
    snapshots: int
    accessed: dict[str, int] = field(default_factory=dict)  # operator id -> groups that its slots accessed
    restored: dict[str, int] = field(default_factory=dict)  # operator id -> of them, those that were not there
    copied: dict[str, int] = field(default_factory=dict)  # operator id -> bytes that they read from the durable store
    moving: dict[str, int] = field(default_factory=dict)  # operator id -> groups that wait to be moved
    entries: dict[str, int] = field(default_factory=dict)  # operator id -> entries of its state, when last counted
    state_bytes: dict[str, int] = field(default_factory=dict)  # operator id -> bytes of its state in the caches
    late: dict[str, int] = field(default_factory=dict)  # window operator id -> rows that it did not take
    errors: dict[str, int] = field(default_factory=dict)  # operator id -> rows and timers that it put aside
    hottest: dict[str, HotKey] = field(default_factory=dict)  # operator id -> the key that had most rows
    durations: dict[str, float] = field(default_factory=dict)  # seconds per step, and "total"

    @property
    def json(self) -> str:
        """The report as JSON, on one line: an object with the names above."""
        return msgspec.json.encode(self).decode()

    @property
    def pretty_json(self) -> str:
        """The same, for people to read."""
        return msgspec.json.format(self.json, indent=2)


Event = Before | After | Staged | Rerun | Republish | Modifying | Exchanging | Progress
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
