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

from midstream.errors import StateError
from midstream.routing import Routing
from midstream.state.cache import Cache, Head
from midstream.state.changelog import LogWriter, Report
from midstream.state.keys import KeyCodec
from midstream.storage import Storage

SLOT, GROUP = "_slot", "_group"
MARKER = -1  # the group of the row that carries a slot's identity


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a task knows of the epoch it runs in."""

    epoch: int
    clock: int
    seed: str
    watermark: int | None  # timers up to here fire
    due: frozenset[int] = frozenset()  # groups that have a timer or an expiry due
    snapshots: frozenset[int] = frozenset()  # groups to snapshot
    prefetch: int = 0  # bytes that a slot may copy of groups that it reads in place


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
        work = Work(self.routing.tokens.index(int(found[0])), Cache(self.head))
        work.report = Report(operator=self.operator, slot=work.slot)
        work._clock = started
        work.lap("receive")
        mine = frozenset(self.routing.groups_of(work.slot))
        output = self.work(work, rows, groups[real].astype(np.int32), mine)
        for group in sorted(self.epoch.snapshots & mine):
            taken = work.cache.snapshot(group)
            if taken is not None:
                work.report.snapshots.append((group, *msgspec.structs.astuple(taken[1])))
        if self.head.in_place and self.epoch.prefetch:
            first = dict.fromkeys(np.unique(groups[real]).tolist())  # those that have rows
            work.report.copied = work.cache.complete([*first, *sorted(mine - first.keys())], self.epoch.prefetch)
        work.lap("snapshot")
        work.report.restored = work.cache.restored
        work.log.write(Storage(self.head.checkpoint), self.directory, work.report, content=self.comparable)
        yield from output

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
