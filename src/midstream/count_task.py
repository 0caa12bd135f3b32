"""The slot's task of windows by count: the rows of all keys of the slot at once, on columns.

Rows of a key that are in open windows are kept in *panes*, which are cut where a window begins or ends. A window is put
together from its panes when it comes out, so a row is folded once, however many windows it is in. Which windows begin
and end is worked out key by key, in whole numbers; what they hold is folded for all keys together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream import code
from midstream.aggregate_task import spans
from midstream.aggregation import segments
from midstream.code import Code
from midstream.count_panes import Numbers, Panes, ranges
from midstream.count_rules import ENDS, CountWindows, Key, Open
from midstream.function_task import in_order, log_changes
from midstream.slot import SlotTask, Work
from midstream.state.forms import Form, Stage, event_timer, form_of, processing_timer
from midstream.state.keyed import GroupState
from midstream.state.keys import Rows
from midstream.state.wire import micros_of
from midstream.windows import END_OF_TIME

_CHUNK = 1 << 20  # panes that are put together at once
_FIELDS = ("seen", "following", "begun", "open", "panes")


@dataclass(frozen=True)
class CountTask(SlotTask):
    """Puts the rows of a slot into windows by count, and gives out those that are full or ended."""

    code: Code
    stages: tuple[Stage, ...]
    order_by: tuple[str, ...]
    event_time: str | None = None  # the column that has it

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot, and end windows whose time is over."""
        windows: CountWindows = code.load(self.code)
        form = form_of(self.operator, self.stages)
        order = in_order(rows, self.order_by)
        rows, groups = rows.take(pa.array(order)), groups[order]
        codec = self.codec(rows)
        arranged = codec.arrange([rows.column(key) for key in self.keys], groups)
        rows = rows.take(pa.array(arranged.order))
        work.report.rows += rows.num_rows
        work.report.keys += len(arranged.keys)
        work.lap("sort")
        states = dict[int, GroupState]()
        keys = list(self._keys(work, windows, form, rows, arranged, owned, states))
        work.lap("read")
        output: list[pa.RecordBatch] = []
        if keys:
            panes = Panes.of(windows, form, keys, rows, segments(arranged))
            work.lap("fold")
            columns = [rows.column(name).take(pa.array(arranged.starts)) for name in self.keys]
            others = codec.decode([key.encoded for key in keys[len(arranged.keys) :]])
            shown = [pa.concat_arrays([c, o.cast(c.type)]) for c, o in zip(columns, others, strict=True)]
            output += self._given_out(windows, shown, keys, panes)
            work.lap("emit")
            _keep(form, keys, panes, states)
        log_changes(work, states)
        return output

    def _keys(
        self,
        work: Work,
        windows: CountWindows,
        form: Form,
        rows: pa.RecordBatch,
        arranged: Rows,
        owned: frozenset[int],
        states: dict[int, GroupState],
    ) -> Iterator[Key]:
        """Work out which windows begin and end: of keys that have rows, in their order, then of others."""
        edges = np.append(arranged.starts, rows.num_rows).tolist()
        moments, ends = self._moments(rows, arranged), _ends(rows, edges)
        touched = {group: range(start, stop) for group, start, stop in spans(arranged)}
        others = list[Key]()
        for group in sorted({*touched, *(self.epoch.due & owned)}):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                state = states[group] = GroupState(form, reader, self.epoch.clock)
                mine = touched.get(group, range(0))
                state.prefetch([arranged.keys[number] for number in mine])
                at_hand = dict[bytes, Key]()
                for number in mine:
                    key = at_hand[arranged.keys[number]] = _kept(form, state, group, arranged.keys[number])
                    key.first, key.rows = edges[number], edges[number + 1] - edges[number]
                    key.take_rows(windows, ends.get(number, ()))
                    if windows.timeout:
                        self._set_timers(windows, key, moments, state)
                    yield key
                for encoded, timer in state.take_due(self.epoch.watermark):  # some may have been set just now
                    if encoded not in at_hand:
                        at_hand[encoded] = _kept(form, state, group, encoded)
                        others.append(at_hand[encoded])
                    at_hand[encoded].end_until(micros_of(timer.at))
        yield from others

    def _moments(self, rows: pa.RecordBatch, arranged: Rows) -> list[int | None]:
        """When the time of a window that begins with a row begins: with the first row of its key that has one."""
        if self.event_time is None:
            return [self.epoch.clock] * rows.num_rows
        times = rows.column(self.event_time).cast(pa.int64())
        if times.null_count:
            there, owners = times.is_valid().to_numpy(zero_copy_only=False), segments(arranged)
            following = np.where(there, np.arange(len(there)), len(there))
            following = np.minimum.accumulate(following[::-1])[::-1]
            has_none = np.append(owners, -1)[following] != owners
            times = times.take(pa.array(following, mask=has_none))
        return times.to_pylist()  # type: ignore[no-any-return]

    def _set_timers(self, windows: CountWindows, key: Key, moments: list[int | None], state: GroupState) -> None:
        """Let windows come out some time after their first row, where it has a time; forget those that are full."""
        is_timed = self.event_time is not None
        for place, window in enumerate(key.windows):
            moment = moments[key.first + max(window.begin - key.seen, 0)] if window.until is None else None
            if moment is not None:
                until = min(moment + windows.timeout, END_OF_TIME)
                key.windows[place] = Open(*window[:3], until)
                if is_timed:
                    state.put(event_timer(until, key.encoded), b"1")
                else:
                    state.put(processing_timer(until, key.encoded), b"1")
                    state.put(event_timer(END_OF_TIME, key.encoded), b"1")  # the end of the input
        still = {window.until for window in key.windows}
        for until in {window.until for window, _ in key.over if window.until is not None} - still:
            state.put((event_timer if is_timed else processing_timer)(until, key.encoded), None)

    def _given_out(
        self, windows: CountWindows, keys: list[pa.Array], at_hand: list[Key], panes: Panes
    ) -> Iterator[pa.RecordBatch]:
        """Put the windows together that are over."""
        over = [
            (owner, window.number, *key.span(window, end))
            for owner, key in enumerate(at_hand)
            for window, end in key.over
        ]
        if not over:
            return
        owners, numbers, begins, ends = (np.array(column, np.int64) for column in zip(*over, strict=True))
        lows, highs = (panes.before(panes.bases[owners] + places) for places in (begins, ends))
        schema = self.output_schema()
        for some in _chunks(highs - lows):
            columns = [key.take(pa.array(owners[some])) for key in keys[: windows.keys]]
            parts = panes.merged(lows[some], highs[some])
            columns += [pa.array(numbers[some]), *(result.of(parts) for result in windows.results)]
            cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.record_batch(cast, schema=schema)


def _kept(form: Form, state: GroupState, group: int, encoded: bytes) -> Key:
    """Read what is kept of a key."""
    state.bind(encoded)
    seen, following, begun, windows, panes = (state.item(form.index[name]) for name in _FIELDS)
    state.release()  # what was migrated
    opened = [Open(*window) for window in windows or ()]
    return Key(group, encoded, seen or 0, following or 0, begun or 0, opened, panes or [])


def _ends(rows: pa.RecordBatch, edges: list[int]) -> dict[int, tuple[int, ...]]:
    """Behind which rows all windows end: key -> how many rows of it come before each of these ends."""
    found: dict[int, tuple[int, ...]] = {}
    if ENDS in rows.schema.names:
        says = np.flatnonzero(rows.column(ENDS).to_numpy(zero_copy_only=False))
        for number, row in zip((np.searchsorted(edges, says, side="right") - 1).tolist(), says.tolist(), strict=True):
            found[number] = (*found.get(number, ()), row + 1 - edges[number])
    return found


def _keep(form: Form, keys: list[Key], panes: Panes, states: dict[int, GroupState]) -> None:
    """Keep what open windows need: their panes, from the oldest on."""
    ends = [len(key.panes) + key.rows for key in keys]
    begins = [key.place(key.windows[0].begin) if key.windows else end for key, end in zip(keys, ends, strict=True)]
    lows, highs = (panes.before(panes.bases + np.array(places)) for places in (begins, ends))
    stored, edges = panes.stored(ranges(lows, highs - lows)), np.append(0, np.cumsum(highs - lows)).tolist()
    for key, (start, stop) in zip(keys, pairwise(edges), strict=True):
        state = states[key.group]
        state.bind(key.encoded)
        now = (key.seen + key.rows, key.following, key.begun, key.windows or None, stored[start:stop] or None)
        for name, item in zip(_FIELDS, now, strict=True):
            state.set_item(form.index[name], item)
        state.release()


def _chunks(sizes: Numbers) -> Iterator[slice]:
    """Cut what has sizes into parts that are not too large together."""
    number = np.cumsum(sizes) // _CHUNK
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(sizes)]
    return (slice(a, b) for a, b in pairwise(edges))
