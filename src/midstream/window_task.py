"""The slot's task of a window operator: rows are folded into panes, and windows are put together when they close.

A pane of a key is an entry like that of any declared aggregate, its start before the key: a window's panes lie side by
side in the store of their group, and closing a window is one scan. Rows that come too late have no pane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.aggregate_task import TAG, AggregateTask, spans
from midstream.aggregation import Columns, Merger, joined, taken
from midstream.slot import Work
from midstream.state.keys import KeyCodec
from midstream.windows import END_OF_TIME, LONG_AGO, Window

PANE = "_pane"
_HEAD = len(TAG) + 9  # of an entry: the tag, and the start of the pane
_SIGN = 1 << 63
_AT_ONCE = 1 << 21  # panes that are put together at a time

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowTask(AggregateTask):
    """Merges the rows of a slot into panes and gives out windows: closed ones, or all that have changed."""

    window: Window
    lateness: int
    updates: bool  # give out windows whenever they change
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
        work.report.keys += len(arranged.keys)
        work.lap("fold")
        merged = self._merged(work, merger, arranged, new) if len(groups) else new
        output, gone = list[pa.RecordBatch](), dict[int, list[bytes]]()
        changed = {group: (start, stop) for group, start, stop in spans(arranged)}
        due = self.epoch.due & owned | (changed.keys() if self._rows_come_first else frozenset())
        for group in sorted({*changed, *due}):
            start, stop = changed.get(group, (0, 0))
            touched = arranged.keys[start:stop]
            ends = self._changed(touched, self._closed_before if group in due else self._now)
            first = _first(work, group, touched)
            if group in due or ends:
                low = LONG_AGO if group in due else min(ends) - self.window.size
                stored = _Panes.stored(work, merger, group, low)
                panes = stored.updated(touched, taken(merged, np.arange(start, stop)))
                if group in due:
                    output += self._closed(merger, codec, stored, panes)
                    gone[group] = panes.before(self._kept_from)
                    first = panes.first_after(self._kept_from)
                output += self._put_together(merger, codec, panes, ends, set(touched))
            work.report.deadlines[group] = (self._deadline(first) if first is not None else None, None)
        work.lap("emit")
        self._log(work, merger, arranged, merged, {group: keys for group, keys in gone.items() if keys})
        return output

    @property
    def _now(self) -> int:
        return self.epoch.watermark if self.epoch.watermark is not None else LONG_AGO

    @property
    def _rows_come_first(self) -> bool:
        """Whether rows come before the watermark of this epoch, as those do that are made at the end of the input."""
        return self.of_windows or self._now >= END_OF_TIME

    @property
    def _taken_after(self) -> int:
        """Windows that end later take rows of this epoch."""
        return (self._closed_before if self._rows_come_first else self._now) - self.lateness

    @property
    def _kept_from(self) -> int:
        """The first moment that lies in a window which is open, or still takes rows."""
        slide = self.window.slide
        return (self._now - self.lateness - self.window.size) // slide * slide + slide

    def _deadline(self, pane: int) -> int:
        """When there may be something to do for a pane or those after it: a window to close, panes to delete."""
        gone = self.window.last_end(pane) + self.lateness
        return gone if self.updates else min(self.window.next_end(pane, self._now), gone)

    @property
    def _closed_before(self) -> int:
        return self.epoch.before if self.epoch.before is not None else LONG_AGO

    def _closed(self, merger: Merger, codec: KeyCodec, stored: _Panes, panes: _Panes) -> Iterator[pa.RecordBatch]:
        """Give out windows that close in this epoch: its own rows are too late for them, but for the lateness."""
        if self.updates:
            return
        final = self._taken_after
        yield from self._put_together(merger, codec, stored, self._ends(stored.starts, self._closed_before, final))
        ends = self._ends(panes.starts, max(self._closed_before, final), self._now)
        yield from self._put_together(merger, codec, panes, ends)

    def _changed(self, touched: list[bytes], closed: int) -> list[int]:
        """The ends of windows to give out because rows of this epoch have changed them: closed ones, or all."""
        if not touched or not (self.updates or self.lateness):
            return []
        return self._ends(_pane_starts(touched), self._taken_after, _SIGN - 1 if self.updates else closed)

    def _ends(self, panes: Times, after: int, until: int) -> list[int]:
        """The ends of windows with some of these panes, after one moment and up to another."""
        window, found = self.window, set[int]()
        for pane in np.unique(panes).tolist():
            last = min(window.last_end(pane), until)
            found.update(range(window.next_end(pane, after), last + 1, window.slide))
        return sorted(found)

    def _put_together(
        self, merger: Merger, codec: KeyCodec, panes: _Panes, ends: list[int], touched: set[bytes] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Merge the panes of each window, key by key; only where one of the panes was touched, if that is given."""
        if not ends:
            return
        rank = panes.key_ranks()
        wanted = None if touched is None else np.array([key in touched for key in panes.keys])
        stops = np.array(ends, dtype=np.int64)
        lows = np.searchsorted(panes.starts, stops - self.window.size)
        highs = np.searchsorted(panes.starts, stops)
        sizes = np.cumsum(highs - lows)
        cuts = np.searchsorted(sizes, np.arange(_AT_ONCE, sizes[-1] + _AT_ONCE, _AT_ONCE), side="left") + 1
        begin = 0
        for stop in np.unique(np.minimum(cuts, len(ends))).tolist():
            parts = [np.arange(lows[w], highs[w]) for w in range(begin, stop)]
            number = np.repeat(np.arange(begin, stop), [len(part) for part in parts])
            items = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            begin = stop
            if not len(items):
                continue
            order = np.lexsort((rank[items], number))  # panes of a key stay in the order of time
            items, number = items[order], number[order]
            new = np.ones(len(items), dtype=bool)
            new[1:] = (rank[items[1:]] != rank[items[:-1]]) | (number[1:] != number[:-1])
            starts = np.flatnonzero(new)
            if wanted is not None:
                kept = np.logical_or.reduceat(wanted[items], starts)
                within = np.repeat(kept, np.diff(starts, append=len(items)))
                items, number, starts = items[within], number[within], np.flatnonzero(new[within])
            folded = merger.folded(panes.columns, items, starts)
            keys = [panes.keys[i] for i in items[starts].tolist()]
            yield self._batch(merger, codec, keys, stops[number[starts]], folded)

    def _batch(
        self, merger: Merger, codec: KeyCodec, keys: list[bytes], ends: Times, folded: Columns
    ) -> pa.RecordBatch:
        schema = self.output_schema()
        columns = codec.decode([key[len(TAG) :] for key in keys])[1:]
        bounds = [pa.array(times, pa.int64()) for times in (ends - self.window.size, ends)]
        named = [*columns, *bounds]
        named = [column.cast(field.type) for column, field in zip(named, schema, strict=False)]
        results = merger.results(folded, [field.type for field in list(schema)[len(named) :]])
        return pa.record_batch([*named, *results], schema=schema)


@dataclass(slots=True)
class _Panes:
    """Panes of a group, in the order of time."""

    keys: list[bytes]
    starts: Times
    columns: Columns

    @classmethod
    def stored(cls, work: Work, merger: Merger, group: int, low: int) -> _Panes:
        """Read the panes from a moment on."""
        start = TAG + b"\1" + (low + _SIGN).to_bytes(8, "big")
        with work.cache.view(group).reader() as reader:
            entries = list(reader.scan(start, _after_all()))
        keys = [key for key, _ in entries]
        return cls(keys, _pane_starts(keys), merger.decode([value for _, value in entries])[0])

    def updated(self, touched: list[bytes], changed: Columns) -> _Panes:
        """The same with panes that are new or have changed."""
        if not touched:
            return self
        now = set(touched)
        kept = [i for i, key in enumerate(self.keys) if key not in now]
        keys = [self.keys[i] for i in kept] + touched
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
        keys = [keys[i] for i in order.tolist()]
        columns = joined(taken(self.columns, np.array(kept, dtype=np.intp)), changed)
        return _Panes(keys, _pane_starts(keys), taken(columns, order))

    def before(self, moment: int) -> list[bytes]:
        """The entries of panes that nothing needs any more."""
        return self.keys[: int(np.searchsorted(self.starts, moment))]

    def first_after(self, moment: int) -> int | None:
        """The first pane that is still needed."""
        at = int(np.searchsorted(self.starts, moment))
        return int(self.starts[at]) if at < len(self.starts) else None

    def key_ranks(self) -> Times:
        """A number for the key of each pane, in the order of keys."""
        keys = [key[_HEAD:] for key in self.keys]
        known = {key: i for i, key in enumerate(sorted(set(keys)))}
        return np.array([known[key] for key in keys], dtype=np.int64)


def _pane_starts(keys: list[bytes]) -> Times:
    heads = b"".join(key[len(TAG) + 1 : _HEAD] for key in keys)
    return (np.frombuffer(heads, ">u8").astype(np.uint64) ^ np.uint64(_SIGN)).view(np.int64)


def _first(work: Work, group: int, touched: list[bytes]) -> int | None:
    """The first pane of a group, where its rows have only been added."""
    with work.cache.view(group).reader() as reader:
        stored = next(iter(reader.scan(TAG, _after_all())), None)
    keys = [key for key in (stored[0] if stored is not None else None, min(touched, default=None)) if key is not None]
    return int(_pane_starts(keys).min()) if keys else None


def _after_all() -> bytes:
    return bytes((TAG[0] + 1,))


def _nothing(merger: Merger) -> Columns:
    return {a.name: [] if a.dtype == "object" else np.zeros(0, a.dtype) for a in merger.accumulators}
