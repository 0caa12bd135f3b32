"""The slot's task of windows by count: the rows of all keys of the slot at once, on columns.

Rows of a key that are in open windows are kept in *panes*, which are cut where a window begins or ends. A window is
merged from its panes when it is emitted, so a row is folded once, however many windows it is in. Which windows begin
and end is computed key by key, in whole numbers; what they hold is folded for all keys together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.operators.aggregates.merge import segments
from midstream.operators.aggregates.task import spans
from midstream.operators.functions.task import in_order, log_changes
from midstream.operators.task import SlotTask, Work
from midstream.operators.windows.by_count.panes import CountPanes, Numbers, ranges
from midstream.operators.windows.by_count.rules import ENDS, CountWindows, Key, Open
from midstream.plan import code
from midstream.plan.code import Code
from midstream.plan.windows import END_OF_TIME, FIRST_TIME
from midstream.state.entries import Form, Stage, event_timer, form_of, processing_timer
from midstream.state.keyed import GroupState
from midstream.state.keys import Rows
from midstream.state.values import micros_of

_CHUNK = 1 << 20  # panes that are merged at once
_NUMBERS = ("seen", "following", "begun", "ended")


@dataclass(frozen=True)
class CountTask(SlotTask):
    """Puts the rows of a slot into windows by count, and emits those that are full or ended."""

    code: Code
    stages: tuple[Stage, ...]
    order_by: tuple[str, ...]
    event_time: str | None = None  # the column that has it

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot, and end windows whose time is over."""
        rules: CountWindows = code.load(self.code)
        form = form_of(self.operator, self.stages)
        order = in_order(rows, self.order_by)
        rows, groups = rows.take(pa.array(order)), groups[order]
        codec = self.codec(rows)
        columns = [rows.column(key) for key in self.keys]
        arranged = codec.arrange(columns, groups)
        rows = rows.take(pa.array(arranged.order))
        work.report.rows += rows.num_rows
        work.count_keys(columns, arranged)
        work.lap("sort")
        keys, states = self._at_hand(work, rules, form, rows, arranged, owned)
        work.lap("read")
        output: list[pa.RecordBatch] = []
        if keys:
            panes = CountPanes.of(rules.parts, form.wires[form.index["panes"]].type.value_type, keys, rows)
            work.lap("fold")
            columns = [rows.column(name).take(pa.array(arranged.starts)) for name in self.keys]
            others = codec.decode([key.encoded for key in keys[len(arranged.keys) :]])
            shown = [pa.concat_arrays([c, o.cast(c.type)]) for c, o in zip(columns, others, strict=True)]
            output += self._given_out(rules, keys, shown, panes)
            work.lap("emit")
            _keep(form, keys, panes, states)
        for group, state in states.items():
            log_changes(work, group, state.changes)
        work.lap("log")
        return output

    def _at_hand(
        self,
        work: Work,
        rules: CountWindows,
        form: Form,
        rows: pa.RecordBatch,
        arranged: Rows,
        owned: frozenset[int],
    ) -> tuple[list[Key], dict[int, GroupState]]:
        """Find the windows that begin and end: of keys that have rows, in their order, then of others."""
        edges = np.append(arranged.starts, rows.num_rows).tolist()
        moments = self._moments(rows, arranged) if rules.timeout else []
        ends = _ends(rows, edges) if rules.ends else {}
        touched = {group: range(start, stop) for group, start, stop in spans(arranged)}
        keys, others, states = list[Key](), list[Key](), dict[int, GroupState]()
        for group in sorted({*touched, *(self.epoch.due & owned)}):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                state = states[group] = GroupState(form, reader, self.epoch.clock)
                mine = {arranged.keys[number]: number for number in touched.get(group, ())}
                state.prefetch(list(mine))
                here = {encoded: _read(form, state, group, encoded) for encoded in mine}
                for encoded, number in mine.items():
                    key = here[encoded]
                    key.first, key.rows = edges[number], edges[number + 1] - edges[number]
                    key.take_rows(rules, ends.get(number, ()))
                    if rules.timeout:
                        self._set_timers(rules.timeout, key, moments, state)
                    self._forget_timers(key, state)
                keys += here.values()
                for encoded, timer in state.take_due(self.epoch.watermark):  # some may have been set just now
                    if encoded not in here:
                        here[encoded] = _read(form, state, group, encoded)
                        others.append(here[encoded])
                    here[encoded].end_until(micros_of(timer.at))
                work.report.deadlines[group] = state.next_deadlines()
        return keys + others, states

    def _moments(self, rows: pa.RecordBatch, arranged: Rows) -> list[int | None]:
        """When the timeout of a window that begins with a row starts: with the first row of its key that has a time."""
        if self.event_time is None:
            return [self.epoch.clock] * rows.num_rows
        times = rows.column(self.event_time).cast(pa.int64())
        is_odd = pc.or_(pc.less(times, FIRST_TIME), pc.greater_equal(times, END_OF_TIME))
        times = pc.if_else(is_odd, None, times)
        if times.null_count:
            there, owners = times.is_valid().to_numpy(zero_copy_only=False), segments(arranged)
            following = np.where(there, np.arange(len(there)), len(there))
            following = np.minimum.accumulate(following[::-1])[::-1]
            has_none = np.append(owners, -1)[following] != owners
            times = times.take(pa.array(following, mask=has_none))
        return times.to_pylist()  # type: ignore[no-any-return]

    def _set_timers(self, timeout: int, key: Key, moments: list[int | None], state: GroupState) -> None:
        """Set timers that emit windows some time after their first row, where it has a time."""
        for place, window in enumerate(key.open):
            moment = moments[key.first + max(window.begin - key.seen, 0)] if window.until is None else None
            if moment is not None:
                until = min(moment + timeout, END_OF_TIME)
                key.open[place] = Open(*window[:3], until)
                state.put(self._timer(until, key), b"1")
                if self.event_time is None:
                    state.put(event_timer(END_OF_TIME, key.encoded), b"1")  # the end of the input

    def _forget_timers(self, key: Key, state: GroupState) -> None:
        """Drop timers that no window waits for any more."""
        over = {window.until for window, _ in key.over if window.until is not None}
        if over:
            for until in over - {window.until for window in key.open}:
                state.put(self._timer(until, key), None)

    def _timer(self, until: int, key: Key) -> bytes:
        return (processing_timer if self.event_time is None else event_timer)(until, key.encoded)

    def _given_out(
        self, rules: CountWindows, keys: list[Key], columns: list[pa.Array], panes: CountPanes
    ) -> Iterator[pa.RecordBatch]:
        """Merge the windows that are over; `columns` are the keys as they are emitted."""
        over = [
            (owner, window.number, key.place(window.begin), key.place(end))
            for owner, key in enumerate(keys)
            for window, end in key.over
        ]
        if not over:
            return
        owners, numbers, begins, ends = (np.array(values, np.int64) for values in zip(*over, strict=True))
        lows, highs = (panes.before(panes.bases[owners] + places) for places in (begins, ends))
        schema = self.output_schema()
        for some in _chunks(highs - lows):
            parts = panes.merged(lows[some], highs[some])
            found = [column.take(pa.array(owners[some])) for column in columns[: rules.keys]]
            found += [pa.array(numbers[some]), *(result.of(parts) for result in rules.results)]
            cast = [column.cast(field.type) for column, field in zip(found, schema, strict=True)]
            yield pa.record_batch(cast, schema=schema)


def _read(form: Form, state: GroupState, group: int, encoded: bytes) -> Key:
    """Read what is kept of a key."""
    state.bind(encoded)
    seen, following, begun, ended = (state.item(form.index[name]) or 0 for name in _NUMBERS)
    windows, panes = (state.item(form.index[name]) or [] for name in ("open", "panes"))
    return Key(group, encoded, seen, following, begun, ended, [Open(*window) for window in windows], panes)


def _keep(form: Form, keys: list[Key], panes: CountPanes, states: dict[int, GroupState]) -> None:
    """Keep what open windows need: their panes, from the oldest on."""
    ends = [len(key.panes) + key.rows for key in keys]
    begins = [key.place(key.open[0].begin) if key.open else end for key, end in zip(keys, ends, strict=True)]
    lows, highs = (panes.before(panes.bases + np.array(places)) for places in (begins, ends))
    packed, edges = panes.packed(ranges(lows, highs - lows)), np.append(0, np.cumsum(highs - lows)).tolist()
    for key, (start, stop) in zip(keys, pairwise(edges), strict=True):
        kept = dict(zip(_NUMBERS, (key.seen + key.rows, key.following, key.begun, key.ended), strict=True))
        record = kept | {"open": key.open or None, "panes": packed[start:stop] or None}
        states[key.group].put_record(key.encoded, [record[field.name] for field in form.fields])


def _ends(rows: pa.RecordBatch, edges: list[int]) -> dict[int, list[int]]:
    """The rows after which all windows end: key -> how many rows of it come before each of these ends."""
    found = defaultdict[int, list[int]](list)
    says = np.flatnonzero(rows.column(ENDS).to_numpy(zero_copy_only=False))
    for number, row in zip((np.searchsorted(edges, says, side="right") - 1).tolist(), says.tolist(), strict=True):
        found[number].append(row + 1 - edges[number])
    return found


def _chunks(sizes: Numbers) -> Iterator[slice]:
    """Cut a list of sizes into parts that are not too large in total."""
    number = np.cumsum(sizes) // _CHUNK
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(sizes)]
    return (slice(a, b) for a, b in pairwise(edges))
