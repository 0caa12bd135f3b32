"""The task of a slot: what one owner of groups does in one epoch, on an executor.

A task reads all its rows, brings the groups it needs to the head of the committed history, processes, and writes one
change log — which is also its report — before it emits a row. No store is touched by an epoch that has not
committed. This file is what both kinds of keyed operator share; they fill in `Work`.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import lmdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.checkpoint.records import Deferred, Report
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError, StateError
from midstream.operators.worker_gc import seldom_looked_for
from midstream.plan.routing import Routing
from midstream.spark import executors
from midstream.state.backlog import read_rows, write_rows
from midstream.state.budget import Budget
from midstream.state.changelog import LogWriter
from midstream.state.copying import complete, fetch, seconds_to_look_up
from midstream.state.groups import Groups, groups_of, log_of
from midstream.state.heat import counted, hottest_first
from midstream.state.history import Head
from midstream.state.keys import KeyCodec, Rows
from midstream.state.runs.groups import RunGroups
from midstream.state.runs.writer import RunWriter

SLOT, GROUP = "_slot", "_group"
_LONGEST = 100  # characters of a key that are reported
MARKER = -1  # the group of the row that carries a slot's identity


@dataclass(frozen=True, slots=True)
class Relocation:
    """Which groups of an operator arrive and leave in an epoch."""

    first: frozenset[int] = frozenset()  # to copy before rows are processed, by their owners
    fetch: dict[int, tuple[int, ...]] = field(default_factory=dict)  # slot -> groups to copy beside its work, in order
    drop: dict[int, tuple[int, ...]] = field(default_factory=dict)  # slot -> groups to release, before anything else
    both: dict[int, tuple[int, ...]] = field(default_factory=dict)  # slot -> groups of another to process too
    lazy: bool = False  # groups that are not here are read where they are stored
    defers: bool = False  # rows of groups that cannot arrive soon are put aside

    def concerns(self, slot: int) -> bool:
        """Tell whether a slot has something to do, even if it owns nothing."""
        return slot in self.fetch or slot in self.drop or slot in self.both


_NOTHING = Relocation()
OF_THE_HOST = (OSError, MemoryError, lmdb.Error, CheckpointError)  # mostly: no row is to blame
_NOT_OF_CODE = (*OF_THE_HOST, StateError)  # or of what is stored: Spark tries again


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a task knows of the epoch it runs in."""

    epoch: int
    clock: int
    seed: str
    watermark: int | None  # timers up to here fire
    before: int | None = None  # the watermark of the epoch before
    due: frozenset[int] = frozenset()  # groups that have a timer or an expiry due
    snapshots: frozenset[int] = frozenset()  # groups to snapshot
    merges: Mapping[int, int] = field(default_factory=dict)  # group -> how many of its newest runs become one
    prefetch: int = 0  # bytes that a slot may copy beside its work,
    prefetch_seconds: float = 0.0  # and how long that may take
    relocation: Relocation | None = None  # what moves
    keys_per_row: float = 1.0  # of the operator, in the last epoch
    heat: Mapping[int, float] = field(default_factory=dict)  # group -> rows of the epochs before, where some are copied


@dataclass(slots=True)
class Work:
    """One slot, one epoch: the tools and the results."""

    slot: int
    cache: Groups
    log: LogWriter = field(default_factory=LogWriter)
    report: Report = field(default_factory=lambda: Report(operator="", slot=0))
    _clock: float = field(default_factory=time.perf_counter)

    def lap(self, part: str) -> None:
        """Note the time since the last lap as spent on a part of the task."""
        now = time.perf_counter()
        self.report.times[part] = self.report.times.get(part, 0.0) + now - self._clock
        self._clock = now

    def count_keys(self, columns: Sequence[pa.Array], rows: Rows, weights: npt.NDArray[np.int64] | None = None) -> None:
        """Report how many keys came, and which of them has most rows.

        Args:
            columns: of the keys, as they came.
            rows: arranged by key.
            weights: how many rows each of those stands for, where they were folded on the way.
        """
        self.report.keys += len(rows.starts)
        if len(rows.starts):
            counted = np.ones(len(rows.order), np.int64) if weights is None else weights[rows.order]
            of_keys = np.add.reduceat(counted, rows.starts)
            most = int(of_keys.argmax())
            if of_keys[most] > self.report.hottest[0]:
                at = int(rows.order[rows.starts[most]])
                key = ", ".join(str(column[at].as_py())[:_LONGEST] for column in columns)
                self.report.hottest = (int(of_keys[most]), key)

    def keep_pending(self) -> None:
        """Make what was logged so far visible to the rest of this epoch."""
        for group, changes in self.log.take().items():
            self.cache.pending.setdefault(group, {}).update(changes)


@dataclass(frozen=True)
class SlotTask(ABC):
    """The function that Spark runs over the rows of a slot; it is pickled into the job."""

    operator: str
    head: Head
    epoch: Epoch
    directory: str  # where the change logs of this run of the epoch go
    aside: str  # where rows go that are put aside
    schema: bytes  # Arrow schema of the output, serialised
    keys: tuple[str, ...]
    routing: Routing

    comparable = True  # whether the stored bytes of two attempts are equal

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slot's epoch."""
        started = time.perf_counter()
        received = [batch for batch in batches if batch.num_rows]
        if received:
            with seldom_looked_for():
                try:
                    output = self._run(received, started)
                except _NOT_OF_CODE:
                    raise
                except Exception:  # raised again where the report is read: no epoch commits with one
                    output = self._failed(received[0], traceback.format_exc())
            yield from output

    def _run(self, received: list[pa.RecordBatch], started: float) -> list[pa.RecordBatch]:
        rows = pa.Table.from_batches(received).combine_chunks().to_batches(max_chunksize=1 << 31)[0]
        found = np.unique(rows.column(SLOT).to_numpy())
        groups = rows.column(GROUP).to_numpy()
        if len(found) != 1:
            raise StateError(f"operator {self.operator!r}: a task got rows of several slots: {found.tolist()}")
        real = groups != MARKER
        rows = rows.filter(pa.array(real))
        budget = Budget(self.epoch.prefetch, self.epoch.prefetch_seconds)
        cache = groups_of(self.head, lazy=self._moves.lazy, budget=budget)
        work = Work(self.routing.tokens.index(int(found[0])), cache, log_of(self.head))
        mine = frozenset(self.routing.groups_of(work.slot))
        if not mine and not self._moves.concerns(work.slot):
            return []
        work.report = Report(operator=self.operator, slot=work.slot, place=executors.here() if self.head.apart else "")
        work.report.watermark, work.report.latest = self.epoch.watermark, self.latest(rows)
        work._clock = started
        work.lap("receive")
        self._come_and_go(work, mine)
        work.lap("move")
        groups = groups[real].astype(np.int32)
        if self._moves.both:
            rows, groups = self._beside_another(work, rows, groups, mine)
        work.report.heat = counted(groups, self.counts(rows))
        output = self._catch_up_and_work(work, rows, groups, mine)
        for twice in self._moves.both.values():
            work.report.digests |= work.log.digests(mine & set(twice), values=self.comparable)
        self._take_snapshots(work, mine)
        work.lap("snapshot")
        self._copy_beside(work, mine)
        work.lap("prefetch")
        work.report.accessed, work.report.restored = cache.accessed, cache.restored
        work.report.copied, work.report.sizes = budget.copied, cache.sizes
        work.log.write(Storage(self.head.checkpoint), self.directory, work.report, content=self.comparable)
        return output

    def _failed(self, rows: pa.RecordBatch, why: str) -> list[pa.RecordBatch]:
        """Report an exception of the user's code: were it raised, Spark would try again, each time in a new process."""
        slot = self.routing.tokens.index(rows.column(SLOT)[0].as_py())
        report = Report(operator=self.operator, slot=slot, failure=why)
        log_of(self.head).write(Storage(self.head.checkpoint), self.directory, report)
        return []

    def _beside_another(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], mine: frozenset[int]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
        """Process groups that another slot owns, and keep nothing but a checksum; return the rows of the slot's own."""
        twice = frozenset(self._moves.both.get(work.slot, ()))
        is_mine = np.isin(groups, sorted(mine))
        trial = Work(work.slot, work.cache, log_of(self.head))
        self.work(trial, rows.filter(pa.array(~is_mine)), groups[~is_mine], twice)
        work.report.digests |= trial.log.digests(twice, values=self.comparable)
        work.lap("beside")
        return rows.filter(pa.array(is_mine)), groups[is_mine]

    @property
    def _moves(self) -> Relocation:
        return self.epoch.relocation or _NOTHING

    def _come_and_go(self, work: Work, mine: frozenset[int]) -> None:
        """Release what is served elsewhere, and copy what must be here before rows are processed."""
        for group in self._moves.drop.get(work.slot, ()):
            work.cache.drop(group)
        work.cache.bring_all(sorted(self._moves.first & mine))

    def _catch_up_and_work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], mine: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process what groups have missed, then the rows, and put aside those of groups that are not here."""
        missed = {group for each in self.head.backlog for group in each.groups} & mine
        deferred = self._deferred(work, mine, missed) if self._moves.defers else frozenset[int]()
        if not missed and not deferred:
            return self.work(work, rows, groups, mine)
        output, caught_up = [], frozenset(missed - deferred)
        for each in self.head.backlog:
            if now := caught_up & frozenset(each.groups):
                output += self._made_up(work, each, now)
        is_deferred = np.isin(groups, sorted(deferred))
        epoch = replace(self.epoch, due=self.epoch.due | caught_up)
        others = rows.filter(pa.array(~is_deferred))
        output += self.as_of(epoch, self.form).work(work, others, groups[~is_deferred], mine - deferred)
        work.keep_pending()
        for group, changes in sorted(work.cache.pending.items()):
            work.log.add(group, sorted(changes), [changes[key] for key in sorted(changes)])
        work.cache.pending.clear()
        work.report.caught_up = sorted(caught_up)
        if deferred:
            aside = rows.filter(pa.array(is_deferred))
            work.report.deferred = Deferred(
                epoch=self.epoch.epoch,
                clock=self.epoch.clock,
                seed=self.epoch.seed,
                watermark=self.epoch.watermark,
                before=self.epoch.before,
                groups=tuple(sorted(deferred)),
                path=write_rows(Storage(self.head.checkpoint), self.aside, aside),
                form=self.form,
            )
        return output

    def _deferred(self, work: Work, mine: frozenset[int], missed: set[int]) -> frozenset[int]:
        """Copy groups that are needed, the hottest first; return those for which the budget is too small.

        One is always copied, so that it ends. None are where all can be read in time where they are stored, unless
        some have missed rows.
        """
        rows = work.report.heat
        needed = hottest_first({*rows, *(self.epoch.due & mine), *missed}, rows, self.epoch.heat)
        cache, deferred, patience = work.cache, set(), self.epoch.prefetch_seconds
        far = [group for group in needed if cache.must_come(group)]
        if isinstance(cache, RunGroups):
            return frozenset()
        if cache.reads_there and missed.isdisjoint(far):
            keys = {group: ceil(rows.get(group, 0) * self.epoch.keys_per_row) for group in far}
            if seconds_to_look_up(cache, keys, patience) <= patience:
                return frozenset()
        for group in far:
            if cache.budget.copied and cache.budget.is_spent:
                deferred.add(group)
            else:
                with cache.budget.bringing():
                    cache.bring_whole(group)
        return frozenset(deferred)

    def _made_up(self, work: Work, missed: Deferred, now: frozenset[int]) -> list[pa.RecordBatch]:
        """Process an epoch that groups had to sit out."""
        epoch = Epoch(missed.epoch, missed.clock, missed.seed, missed.watermark, missed.before, due=now)
        task = self.as_of(epoch, missed.form)
        rows = read_rows(Storage(self.head.checkpoint), missed.path)
        rows = rows.filter(pa.array(np.isin(rows.column(GROUP).to_numpy(), sorted(now))))
        output = task.work(work, rows, rows.column(GROUP).to_numpy().astype(np.int32), now)
        work.keep_pending()
        return output

    def _take_snapshots(self, work: Work, mine: frozenset[int]) -> None:
        """Take the snapshots that are due, unless this epoch had to read from the store for its rows.

        The driver asks for them again. In a store of runs, say which of them are merged with what is written.
        """
        cache = work.cache
        if isinstance(cache, RunGroups):
            assert isinstance(work.log, RunWriter)
            work.log.older = cache.older({g: count for g, count in self.epoch.merges.items() if g in mine})
        elif not cache.restored:
            for group in sorted(group for group in self.epoch.snapshots & mine if cache.copies.is_here(group)):
                taken = cache.snapshot(group)
                if taken is not None:
                    work.report.snapshots.append((group, *msgspec.structs.astuple(taken[1])))

    def _copy_beside(self, work: Work, mine: frozenset[int]) -> None:
        """Copy, within the budget, what this executor reads where it is stored, and what it will serve later.

        The hottest groups come first: those with most rows in this epoch, then those that had most before.

        An epoch that had to read from the store for its rows was slow enough: it leaves copying to the next one.
        """
        if work.cache.restored:
            work.cache.budget.give_up()
        if (self.head.in_place or self._moves.lazy) and self.epoch.prefetch:
            wanted = hottest_first(mine, work.report.heat, self.epoch.heat)
            work.report.in_place = complete(work.cache, wanted)
        work.report.fetched = fetch(work.cache, self._moves.fetch.get(work.slot, ()))

    def counts(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """How many rows each of those received stands for, where they were folded on the way."""
        return None

    @abstractmethod
    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot; fill in log and report, return the output."""

    def latest(self, rows: pa.RecordBatch) -> int | None:
        """The latest time of rows so far, including those that are put aside, where it matters."""
        return None

    @property
    def form(self) -> str:
        """The form in which rows come, where there are several."""
        return ""

    def as_of(self, epoch: Epoch, form: str) -> SlotTask:
        """The same task in an earlier epoch, for rows of that form."""
        return replace(self, epoch=epoch)

    def output_schema(self) -> pa.Schema:
        """Return the declared output schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def codec(self, rows: pa.RecordBatch) -> KeyCodec:
        """Make the key codec for the key columns of the rows."""
        return KeyCodec(pa.schema([rows.schema.field(key) for key in self.keys]))
