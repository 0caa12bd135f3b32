"""The slot's task of a window operator: rows are folded into panes, and panes merged into windows when they close.

Late rows have no pane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.operators.aggregates.declare import CLOSES
from midstream.operators.aggregates.merge import Columns, Merger, taken
from midstream.operators.aggregates.task import TAG, AggregateTask, spans
from midstream.operators.task import Work
from midstream.operators.windows.panes import Panes, Times, first_pane, pane_starts
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import END_OF_TIME, LONG_AGO
from midstream.state.keys import KeyCodec, Rows

PANE = "_pane"
_EVER = (1 << 63) - 1
_FEW = 10_000  # windows that may be checked one by one
_SHARING = 16  # panes of a window above which it pays to merge what several windows share


@dataclass(frozen=True, slots=True)
class _Folded:
    """The rows of an epoch in their panes, with what was stored of these, and what merges them."""

    merger: Merger
    codec: KeyCodec
    arranged: Rows
    panes: Columns
    ended: dict[int, set[bytes]]  # group -> panes whose windows a row has ended


@dataclass(frozen=True)
class WindowTask(AggregateTask):
    """Merges the rows of a slot into panes and emits windows: closed ones, or all that have changed."""

    regimes: tuple[Regime, ...]  # which windows have which size and slide; one, unless it has been changed
    lateness: int
    updates: bool  # emit windows whenever they change
    of_windows: bool = False  # rows are windows that close in this epoch, and come before its watermark

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot, and close windows of groups that have some to close."""
        rows, groups = self.timed(work, rows, groups, PANE)
        merger, codec = Merger(self.compiled), self.codec(rows)
        arranged = codec.arrange([rows.column(key) for key in self.keys], groups, TAG, stable=False)
        work.lap("sort")
        sent = {a.name: rows.column(a.name) for a in self.compiled.accumulators if a.name in rows.schema.names}
        new = merger.reduce(sent, arranged, self.combined) if len(groups) else _nothing(merger)
        work.count_keys([rows.column(key) for key in self.keys], arranged, self.counts(rows))
        work.lap("fold")
        merged = self._merged(work, merger, arranged, new) if len(groups) else new
        folded = _Folded(merger, codec, arranged, merged, self._ended(rows, arranged))
        output, edits = list[pa.RecordBatch](), dict[int, dict[bytes, bytes | None]]()
        changed = {group: (start, stop) for group, start, stop in spans(arranged)}
        due = self.epoch.due & owned | (changed.keys() if self._rows_come_first else frozenset())
        for group in sorted({*changed, *due}):
            gone = self._process(work, folded, group, changed.get(group, (0, 0)), output, is_due=group in due)
            if gone:
                edits[group] = gone
        work.lap("emit")
        self._log(work, merger, arranged, merged, edits)
        return output

    def _process(
        self,
        work: Work,
        folded: _Folded,
        group: int,
        span: tuple[int, int],
        output: list[pa.RecordBatch],
        *,
        is_due: bool,
    ) -> dict[bytes, bytes | None]:
        """Emit windows of a group, and note its next deadline; return panes that are deleted or emptied."""
        merger, codec, ended = folded.merger, folded.codec, folded.ended.get(group)
        gone: dict[bytes, bytes | None] = {}
        touched = folded.arranged.keys[slice(*span)]
        changes = self._changed(touched, self._closed_before if is_due else self._now)
        first = first_pane(work, group, touched)
        if is_due or ended or changes:
            low = LONG_AGO if is_due or ended else min(ends[0] - regime.window.size for regime, ends in changes)
            stored = Panes.stored(work, merger, group, low)
            panes = stored.updated(touched, taken(folded.panes, np.arange(*span)))
            if is_due:
                output += self._closed(merger, codec, stored, panes)
                gone = dict.fromkeys(panes.before(self._kept_from))
                first = panes.first_after(self._kept_from)
            for regime, ends in changes:
                output += self._put_together(regime, merger, codec, panes, ends, set(touched))
            if ended:
                near = panes.of_same_keys(ended)
                output += self._closed_early(merger, codec, near, ended)
                gone = near.without_windows(ended, merger, self.regimes, self._now - self.lateness) | gone
        work.report.deadlines[group] = (self._deadline(first) if first is not None else None, None)
        return gone

    def latest(self, rows: pa.RecordBatch) -> int | None:
        """The start of the latest pane."""
        return pc.max(rows.column(PANE)).as_py()  # type: ignore[no-any-return]

    @property
    def _now(self) -> int:
        return self.epoch.watermark if self.epoch.watermark is not None else LONG_AGO

    @property
    def _rows_come_first(self) -> bool:
        """Whether rows come before the watermark of this epoch, as those emitted at the end of the input do."""
        return self.of_windows or self._now >= END_OF_TIME

    @property
    def _taken_after(self) -> int:
        """Windows that end later take rows of this epoch."""
        return (self._closed_before if self._rows_come_first else self._now) - self.lateness

    @property
    def _kept_from(self) -> int:
        """The first moment that lies in a window which is open, or still takes rows."""
        return min(regime.starts_after(self._now - self.lateness) for regime in self.regimes)

    def _deadline(self, pane: int) -> int:
        """When there may be something to do for a pane or those after it: a window to close, panes to delete."""
        over = [regime.last_end(pane) for regime in self.regimes if regime.since <= pane]
        gone = max(over, default=pane) + self.lateness
        return gone if self.updates else min(gone, *(regime.next_end(pane, self._now) for regime in self.regimes))

    @property
    def _closed_before(self) -> int:
        return self.epoch.before if self.epoch.before is not None else LONG_AGO

    def _closed(self, merger: Merger, codec: KeyCodec, stored: Panes, panes: Panes) -> Iterator[pa.RecordBatch]:
        """Emit windows that close in this epoch: its own rows are too late for them, unless within the lateness."""
        if self.updates:
            return
        final = self._taken_after
        for regime in self.regimes:
            ends = _ends(regime, stored.starts, self._closed_before, final)
            yield from self._put_together(regime, merger, codec, stored, ends)
            ends = _ends(regime, panes.starts, max(self._closed_before, final), self._now)
            yield from self._put_together(regime, merger, codec, panes, ends)

    def _ended(self, rows: pa.RecordBatch, arranged: Rows) -> dict[int, set[bytes]]:
        """The panes of rows that have ended all windows of their key that they lie in, group by group."""
        found: dict[int, set[bytes]] = {}
        if CLOSES in rows.schema.names and rows.num_rows:
            says = rows.column(CLOSES).to_numpy(zero_copy_only=False)[arranged.order]
            for i in np.flatnonzero(np.logical_or.reduceat(says, arranged.starts)).tolist():
                found.setdefault(int(arranged.groups[i]), set()).add(arranged.keys[i])
        return found

    def _closed_early(
        self, merger: Merger, codec: KeyCodec, panes: Panes, ended: set[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Emit windows over some panes that the watermark has not reached."""
        for regime in () if self.updates else self.regimes:
            ends = _ends(regime, pane_starts(list(ended)), self._now, _EVER)
            yield from self._put_together(regime, merger, codec, panes, ends, ended)

    def _changed(self, touched: list[bytes], closed: int) -> list[tuple[Regime, list[int]]]:
        """The ends of windows to emit because rows of this epoch have changed them: closed ones, or all."""
        if not touched or not (self.updates or self.lateness):
            return []
        panes, until = pane_starts(touched), _EVER if self.updates else closed
        found = [(regime, _ends(regime, panes, self._taken_after, until)) for regime in self.regimes]
        return [(regime, ends) for regime, ends in found if ends]

    def _put_together(
        self,
        regime: Regime,
        merger: Merger,
        codec: KeyCodec,
        panes: Panes,
        ends: list[int],
        touched: set[bytes] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Merge the panes of each window, key by key; only where one of the panes was touched, if that is given."""
        if not ends:
            return
        panes.rank()
        wanted = None if touched is None else np.array([key in touched for key in panes.keys])
        stops = np.array(ends, dtype=np.int64)
        starts = stops - regime.window.size
        step = _at_once(regime, len(ends))
        for begin in range(0, len(ends), step):
            these = slice(begin, begin + step)
            found = panes.windows(merger, starts[these], stops[these], wanted)
            if found is not None:
                keys, number, folded = found
                bounds = (starts[these][number], stops[these][number])
                yield self._batch(merger, codec, keys, bounds, folded)

    def _batch(
        self, merger: Merger, codec: KeyCodec, keys: list[bytes], bounds: tuple[Times, Times], folded: Columns
    ) -> pa.RecordBatch:
        schema = self.output_schema()
        columns = codec.decode([key[len(TAG) :] for key in keys])[1:]
        named = [*columns, *(pa.array(times, pa.int64()) for times in bounds)]
        named = [column.cast(field.type) for column, field in zip(named, schema, strict=False)]
        results = merger.results(folded, [field.type for field in list(schema)[len(named) :]])
        return pa.record_batch([*named, *results], schema=schema)


def _ends(regime: Regime, panes: Times, after: int, until: int) -> list[int]:
    """The ends of windows with some of these panes, after one moment and up to another."""
    window, panes = regime.window, np.unique(panes)
    if not len(panes):
        return []
    first = regime.next_end(int(panes[0]), after)
    last = min(regime.last_end(int(panes[-1])), until)
    if (last - first) // window.slide < _FEW:
        ends = np.arange(first, last + 1, window.slide)
        held = np.searchsorted(panes, ends) > np.searchsorted(panes, ends - window.size)
        return ends[held].tolist()  # type: ignore[no-any-return]
    found = set[int]()  # panes that lie far apart
    for pane in panes.tolist():
        stop = min(regime.last_end(pane), until)
        found.update(range(regime.next_end(pane, after), stop + 1, window.slide))
    return sorted(found)


def _at_once(regime: Regime, windows: int) -> int:
    """How many windows to merge at a time: panes that all share are merged once, and more windows share fewer."""
    share = regime.window.size // regime.window.pane
    return math.isqrt(share) if share >= _SHARING else windows


def _nothing(merger: Merger) -> Columns:
    return {a.name: [] if a.dtype == "object" else np.zeros(0, a.dtype) for a in merger.accumulators}
