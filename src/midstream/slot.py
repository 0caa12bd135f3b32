"""The task of a slot: what one owner of groups does in one epoch, on an executor.

A task reads all its rows, takes the groups it needs to the head of the committed history, processes, and writes one
change log — which is also its report — before it gives out a row. No store is touched by an epoch that has not
committed. This file is what both kinds of keyed operator share; they fill in `Work`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream import place
from midstream.errors import StateError
from midstream.routing import Routing
from midstream.state.cache import Cache, Head
from midstream.state.changelog import LogWriter, Report
from midstream.state.keys import KeyCodec
from midstream.storage import Storage

SLOT, GROUP = "_slot", "_group"
MARKER = -1  # the group of the row that carries a slot's identity


@dataclass(frozen=True, slots=True)
class Relocation:
    """Which groups of an operator come and go in an epoch."""

    first: frozenset[int] = frozenset()  # are copied before rows are processed, by their owners
    fetch: dict[int, tuple[int, ...]] = field(default_factory=dict)  # slot -> groups to copy beside its work, in order
    drop: dict[int, tuple[int, ...]] = field(default_factory=dict)  # slot -> groups to give up, before anything else
    lazy: bool = False  # what is not here is read where it is stored

    def concerns(self, slot: int) -> bool:
        """Whether a slot has something to do, also if it owns nothing."""
        return slot in self.fetch or slot in self.drop


_NOTHING = Relocation()


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a task knows of the epoch it runs in."""

    epoch: int
    clock: int
    seed: str
    watermark: int | None  # timers up to here fire
    due: frozenset[int] = frozenset()  # groups that have a timer or an expiry due
    snapshots: frozenset[int] = frozenset()  # groups to snapshot
    prefetch: int = 0  # bytes that a slot may copy beside its work
    relocation: Relocation | None = None  # what moves


@dataclass(slots=True)
class Work:
    """One slot, one epoch: the tools and the results."""

    slot: int
    cache: Cache
    log: LogWriter = field(default_factory=LogWriter)
    report: Report = field(default_factory=lambda: Report(operator="", slot=0))
    _clock: float = field(default_factory=time.perf_counter)

    def lap(self, part: str) -> None:
        """Note the time since the last lap as spent on a part of the task."""
        now = time.perf_counter()
        self.report.times[part] = self.report.times.get(part, 0.0) + now - self._clock
        self._clock = now


@dataclass(frozen=True)
class SlotTask(ABC):
    """The function that Spark runs over the rows of a slot; it is pickled into the job."""

    operator: str
    head: Head
    epoch: Epoch
    directory: str  # where the change logs of this run of the epoch go
    schema: bytes  # Arrow schema of the output, serialised
    keys: tuple[str, ...]
    routing: Routing

    comparable = True  # whether the stored bytes of two attempts are equal

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slot's epoch."""
        started = time.perf_counter()
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        rows = pa.Table.from_batches(received).combine_chunks().to_batches(max_chunksize=1 << 31)[0]
        found = np.unique(rows.column(SLOT).to_numpy())
        groups = rows.column(GROUP).to_numpy()
        if len(found) != 1:
            raise StateError(f"operator {self.operator!r}: a task got rows of several slots: {found.tolist()}")
        real = groups != MARKER
        rows = rows.filter(pa.array(real))
        work = Work(self.routing.tokens.index(int(found[0])), Cache(self.head, lazy=self._moves.lazy))
        mine = frozenset(self.routing.groups_of(work.slot))
        if not mine and not self._moves.concerns(work.slot):
            return
        work.report = Report(operator=self.operator, slot=work.slot, place=place.here() if self.head.apart else "")
        work._clock = started
        work.lap("receive")
        self._come_and_go(work, mine)
        work.lap("move")
        output = self.work(work, rows, groups[real].astype(np.int32), mine)
        for group in sorted(self.epoch.snapshots & mine):
            taken = work.cache.snapshot(group)
            if taken is not None:
                work.report.snapshots.append((group, *msgspec.structs.astuple(taken[1])))
        work.lap("snapshot")
        self._copy_beside(work, groups[real], mine)
        work.lap("prefetch")
        work.report.accessed, work.report.restored = work.cache.accessed, work.cache.restored
        work.report.restored_bytes = work.cache.restored_bytes
        work.log.write(Storage(self.head.checkpoint), self.directory, work.report, content=self.comparable)
        yield from output

    @property
    def _moves(self) -> Relocation:
        return self.epoch.relocation or _NOTHING

    def _come_and_go(self, work: Work, mine: frozenset[int]) -> None:
        """Give up what is served elsewhere, and bring what must be here before rows are processed."""
        for group in self._moves.drop.get(work.slot, ()):
            work.cache.drop(group)
        for group in sorted(self._moves.first & mine):
            work.cache.bring(group)

    def _copy_beside(self, work: Work, groups: npt.NDArray[np.int32], mine: frozenset[int]) -> None:
        """Copy, within the budget, what this place reads where it is stored, and what it will serve later."""
        if (self.head.in_place or self._moves.lazy) and self.epoch.prefetch:
            first = dict.fromkeys(np.unique(groups).tolist())  # those that have rows
            wanted = [*first, *sorted(mine - first.keys())]
            work.report.copied, work.report.in_place = work.cache.complete(wanted, self.epoch.prefetch)
        fetch = self._moves.fetch.get(work.slot, ())
        work.report.fetched = work.cache.fetch(fetch, self.epoch.prefetch)

    @abstractmethod
    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot; fill in log and report, give the output."""

    def output_schema(self) -> pa.Schema:
        """Give the declared output schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def codec(self, rows: pa.RecordBatch) -> KeyCodec:
        """Make the key codec for the key columns of the rows."""
        return KeyCodec(pa.schema([rows.schema.field(key) for key in self.keys]))
