"""The slot's task of a session window: runs of rows become sessions, and sessions that overlap become one.

Entries of a group, by their first byte:

    1 key start                  a session: its accumulators, its end among them
    2 moment key start           a timer: when to check the session, at its end or before it, and before it is deleted

The sessions of a key lie side by side, in the order of time. A session that grows leaves its timer where it is, and
that of a deleted session stays: they are moved or dropped when their moment has come.

Each row brings the end of a session that has no later one: the gap of the plan that it came under is in it, and is not
known here. A session ends with the last of its rows' ends.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.operators.aggregates.declare import CLOSES, END, START, WHOLE
from midstream.operators.aggregates.merge import Columns, Merger, joined, segments, taken
from midstream.operators.aggregates.task import TAG, AggregateTask, spans
from midstream.operators.task import Work
from midstream.plan.windows import END_OF_TIME, LONG_AGO
from midstream.state.entries import EVENT, PROCESSING, deadline_of, event_timer
from midstream.state.keys import KeyCodec, Rows

_SIGN = np.uint64(1 << 63)
_MOMENT = 9  # bytes before the key in a timer

Times = npt.NDArray[np.int64]
Edits = defaultdict[int, dict[bytes, bytes | None]]  # group -> entry -> its value, None: it is deleted


@dataclass(frozen=True)
class SessionTask(AggregateTask):
    """Merges the rows of a slot into sessions and emits these: closed ones, or all that have changed."""

    lateness: int
    updates: bool  # emit sessions whenever they change
    gives_late: bool = False  # emit late rows, in a column of their own

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot, and the sessions whose timers are due."""
        late = [rows.filter(rows.column(START).is_null())] if self.gives_late else []
        rows, groups = self.timed(work, rows, groups, START)
        merger, codec, edits, due = Merger(self.compiled), self.codec(rows), Edits(dict), self.epoch.due & owned
        changed = self._decoded(merger, [])
        if rows.num_rows:
            keys, runs, order, lengths = self._runs(work, merger, rows, groups)
            changed, are_late = self._merged_with_stored(work, merger, keys, runs, edits)
            if self.gives_late:
                late.append(rows.take(pa.array(order[np.repeat(are_late, lengths)])))
        closing = self._looked_at(work, merger, due, changed, edits)
        shown = changed if self.updates else changed.at(np.flatnonzero((changed.ends <= self._now) | changed.over))
        output = [self._batch(merger, codec, found) for found in (shown, closing) if found.entries]
        if self.gives_late:
            output = [*map(self._without_late, output), *(self._only_late(some) for some in late if some.num_rows)]
        work.lap("emit")
        for group in sorted(due.union(groups.tolist())):
            self._note(work, group, edits[group])
        work.lap("log")
        return output

    @property
    def _now(self) -> int:
        return self.epoch.watermark if self.epoch.watermark is not None else LONG_AGO

    @property
    def _taken_after(self) -> int:
        """Sessions that end later take rows of this epoch; those of the end of the input come before its watermark."""
        return (self._now if self._now < END_OF_TIME else self._closed_before) - self.lateness

    def _runs(
        self, work: Work, merger: Merger, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]
    ) -> tuple[Rows, _Sessions, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Sort rows by key and time, cut them where there is a gap, and fold each run.

        Returns the keys, the runs, the order of the rows, and how many of these are in each run.
        """
        keys, times = self._by_key(rows, groups), rows.column(START).to_numpy()
        owners = segments(keys)
        order = keys.order[np.lexsort((times[keys.order], owners))]
        times, reach = times[order], rows.column(END).to_numpy()[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (owners[1:] != owners[:-1]) | (times[1:] >= reach[:-1])
        starts = np.flatnonzero(new)
        lengths = np.diff(starts, append=len(order))
        work.report.keys += len(keys.keys)
        work.lap("sort")
        sent = {a.name: rows.column(a.name) for a in self.compiled.accumulators if a.name in rows.schema.names}
        if self.combined:  # by the JVM, rows of one moment: its results can only be merged
            moments = np.arange(len(order))
            each = merger.reduce(sent, Rows(order, moments, groups[order], []), True)
            columns = merger.folded(each, moments, starts)
            counts = np.add.reduceat(rows.column("_rows").to_numpy()[order], starts)
        else:
            columns = merger.reduce(sent, Rows(order, starts, groups[order[starts]], []), False)
            counts = lengths
        work.lap("fold")
        owners, ends = owners[starts], columns[END]
        places = (times[starts].view(np.uint64) ^ _SIGN).astype(">u8").tobytes()
        entries = [
            TAG + keys.keys[owner] + b"\1" + places[8 * i : 8 * i + 8] for i, owner in enumerate(owners.tolist())
        ]
        over = np.zeros(len(starts), dtype=bool)
        if CLOSES in rows.schema.names:
            over = np.logical_or.reduceat(rows.column(CLOSES).to_numpy(zero_copy_only=False)[order], starts)
        runs = _Sessions(entries, keys.groups[owners], owners, times[starts], ends, counts, over, columns)
        return keys, runs, order, lengths

    def _by_key(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> Rows:
        names = [name for name in self.keys if name != START]
        if not names:
            return Rows(np.arange(len(groups)), np.zeros(1, np.intp), groups[:1], [b""])
        codec = KeyCodec(pa.schema([rows.schema.field(name) for name in names]))
        return codec.arrange([rows.column(name) for name in names], groups, stable=False)

    def _merged_with_stored(
        self, work: Work, merger: Merger, keys: Rows, runs: _Sessions, edits: Edits
    ) -> tuple[_Sessions, npt.NDArray[np.bool_]]:
        """Merge runs with the stored sessions that they overlap; return the sessions that have changed, and late runs.

        A run is late, with all its rows, if it overlaps none and would be forgotten itself.
        """
        stored = self._stored(work, merger, keys)
        work.lap("read")
        parts = stored.and_then(runs)
        order, firsts = parts.overlapping()
        lengths = np.diff(firsts, append=len(order))
        rows = np.add.reduceat(parts.rows[order], firsts)
        folded = merger.folded(parts.columns, order, firsts)
        over = np.logical_or.reduceat(parts.over[order], firsts)
        merged = replace(parts.at(order[firsts]), ends=folded[END], rows=rows, over=over, columns=folded)
        late = merged.ends <= self._taken_after
        work.report.late += int(rows[late].sum())
        now_other = (rows > 0) & ~late
        for i in order[np.repeat(now_other, lengths)].tolist():
            if not parts.rows[i]:
                edits[int(parts.groups[i])][parts.entries[i]] = None
        changed = merged.at(np.flatnonzero(now_other))
        watched = {entry for entry, end in zip(stored.entries, stored.ends.tolist(), strict=True) if end > self._now}
        items = zip(changed.groups.tolist(), changed.entries, changed.ends.tolist(), changed.over.tolist(), strict=True)
        for (group, entry, end, is_over), value in zip(items, merger.encode(changed.columns), strict=True):
            if is_over:
                edits[group][entry] = None
            elif end + self.lateness > self._now:
                edits[group][entry] = value
                if entry not in watched:
                    edits[group][self._timer(entry, end)] = b"1"
        are_late = np.empty(len(order), dtype=bool)
        are_late[order] = np.repeat(late, lengths)
        work.lap("merge")
        return changed, are_late[len(stored.entries) :]

    def _stored(self, work: Work, merger: Merger, keys: Rows) -> _Sessions:
        """Read the sessions of keys that still take rows."""
        found: list[tuple[int, int, bytes, bytes]] = []
        for group, start, stop in spans(keys):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                for owner in range(start, stop):
                    prefix = TAG + keys.keys[owner]
                    found += [(group, owner, *entry) for entry in reader.scan(prefix + b"\1", prefix + b"\2")]
        sessions = self._decoded(merger, found)
        return sessions.at(np.flatnonzero(sessions.ends > self._taken_after))

    def _decoded(self, merger: Merger, found: list[tuple[int, int, bytes, bytes]]) -> _Sessions:
        """Make sessions from what is stored: group, number of the key, entry, value."""
        columns, _ = merger.decode([value for _, _, _, value in found])
        entries = [entry for _, _, entry, _ in found]
        places = np.frombuffer(b"".join(entry[-8:] for entry in entries), ">u8").astype(np.uint64)
        return _Sessions(
            entries,
            np.array([group for group, _, _, _ in found], np.int32),
            np.array([owner for _, owner, _, _ in found], np.intp),
            (places ^ _SIGN).view(np.int64),
            columns[END],
            np.zeros(len(found), np.int64),
            np.zeros(len(found), dtype=bool),
            columns,
        )

    def _looked_at(
        self, work: Work, merger: Merger, due: frozenset[int], changed: _Sessions, edits: Edits
    ) -> _Sessions:
        """Go through the timers that are due, set them again, and drop what is forgotten; return what closes."""
        found: list[tuple[int, int, bytes, bytes]] = []
        for group in sorted(due):
            with work.cache.view(group).reader() as reader:
                timers = [entry for entry, _ in reader.scan(event_timer(LONG_AGO, b""), self._after_now)]
                edits[group].update(dict.fromkeys(timers))
                entries = list(dict.fromkeys(TAG + timer[_MOMENT:] for timer in timers))
                there = zip(entries, reader.get_many(entries), strict=True)
                found += [(group, 0, entry, value) for entry, value in there if value is not None]
        stored, closing = self._decoded(merger, found), []
        ends = dict(zip(changed.entries, changed.ends.tolist(), strict=True))
        for i, (group, _, entry, _) in enumerate(found):
            edit, end = edits[group], int(stored.ends[i])
            if entry in edit and end > self._taken_after:  # rows of this epoch are in it
                if edit[entry] is not None:
                    edit[self._timer(entry, ends[entry])] = b"1"
                continue
            if self._closed_before < end <= self._now:
                closing.append(i)
            if end + self.lateness > self._now:
                edit[self._timer(entry, end)] = b"1"
            elif edit.get(entry) is None:  # otherwise another session has begun there
                edit[entry] = None
        return stored.at(np.array([] if self.updates else closing, np.intp))

    @property
    def _closed_before(self) -> int:
        return self.epoch.before if self.epoch.before is not None else LONG_AGO

    @property
    def _after_now(self) -> bytes:
        return event_timer(self._now + 1, b"")

    def _timer(self, entry: bytes, end: int) -> bytes:
        """The timer of a session that is kept: for its end, or for when it is forgotten."""
        return event_timer(end if end > self._now else end + self.lateness, entry[len(TAG) :])

    def _note(self, work: Work, group: int, edit: dict[bytes, bytes | None]) -> None:
        """Log what has changed in a group, and note when there is something to do next."""
        with work.cache.view(group).reader() as reader:
            timers = [entry for entry, _ in islice(reader.scan(self._after_now, bytes((PROCESSING,))), 1)]
        timers += [entry for entry, value in edit.items() if entry[0] == EVENT and value is not None]
        work.report.deadlines[group] = (deadline_of(min(timers)) if timers else None, None)
        if edit:
            entries = sorted(edit)
            work.log.add(group, entries, [edit[entry] for entry in entries])

    def _without_late(self, sessions: pa.RecordBatch) -> pa.RecordBatch:
        """Sessions beside no late rows."""
        schema = self.output_schema()
        return pa.record_batch([*sessions, pa.nulls(sessions.num_rows, schema.field(WHOLE).type)], schema=schema)

    def _only_late(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Late rows beside no sessions; none, where they were put aside while late rows were not read."""
        schema = self.output_schema()
        *others, type = schema.types
        whole = rows.column(WHOLE).cast(type) if WHOLE in rows.schema.names else pa.nulls(0, type)
        return pa.record_batch([*(pa.nulls(len(whole), other) for other in others), whole], schema=schema)

    def _batch(self, merger: Merger, codec: KeyCodec, sessions: _Sessions) -> pa.RecordBatch:
        schema = self.output_schema()
        if self.gives_late:
            schema = schema.remove(len(schema) - 1)
        keys = codec.decode([entry[len(TAG) :] for entry in sessions.entries])
        named = [*keys, pa.array(sessions.ends, pa.int64())]
        named = [column.cast(field.type) for column, field in zip(named, schema, strict=False)]
        results = merger.results(sessions.columns, [field.type for field in list(schema)[len(named) :]])
        return pa.record_batch([*named, *results], schema=schema)


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions side by side, stored ones and runs of rows that may become part of them."""

    entries: list[bytes]
    groups: npt.NDArray[np.int32]
    owners: npt.NDArray[np.intp]  # the number of the key
    starts: Times
    ends: Times
    rows: Times  # of this epoch; 0: it is stored
    over: npt.NDArray[np.bool_]  # whether a row has ended it
    columns: Columns

    def at(self, some: npt.NDArray[np.intp]) -> _Sessions:
        """Take some of them."""
        return _Sessions(
            [self.entries[i] for i in some.tolist()],
            self.groups[some],
            self.owners[some],
            self.starts[some],
            self.ends[some],
            self.rows[some],
            self.over[some],
            taken(self.columns, some),
        )

    def and_then(self, others: _Sessions) -> _Sessions:
        """Append others."""
        return _Sessions(
            self.entries + others.entries,
            np.concatenate([self.groups, others.groups]),
            np.concatenate([self.owners, others.owners]),
            np.concatenate([self.starts, others.starts]),
            np.concatenate([self.ends, others.ends]),
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.over, others.over]),
            joined(self.columns, others.columns),
        )

    def overlapping(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Find those of a key that overlap; return them all in the order of keys and time, and where each set begins.

        One that begins where another ends does not overlap it.
        """
        order = np.lexsort((self.starts, self.owners))
        owners, starts, ends = self.owners[order], self.starts[order], self.ends[order]
        by_end = np.lexsort((ends, owners))
        rank = np.empty(len(order), np.intp)
        rank[by_end] = np.arange(len(order))
        reach = ends[by_end[np.maximum.accumulate(rank)]]  # the latest end so far, of the same key
        new = np.ones(len(order), dtype=bool)
        new[1:] = (owners[1:] != owners[:-1]) | (starts[1:] >= reach[:-1])
        return order, np.flatnonzero(new)
