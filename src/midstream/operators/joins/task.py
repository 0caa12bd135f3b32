"""The slot's task of a join: new rows of both sides meet what is kept, all keys of the slot at once, on columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.operators.aggregates.merge import segments
from midstream.operators.aggregates.task import spans
from midstream.operators.functions.task import in_order, log_changes
from midstream.operators.joins.kept import KeptRows, Mask, Numbers, Side
from midstream.operators.joins.rules import LEFT, RIGHT, SIDES, Join, Times
from midstream.operators.task import SlotTask, Work
from midstream.plan import code
from midstream.plan.code import Code
from midstream.state.entries import EVENT, Form, Stage, form_of
from midstream.state.expiry import expire
from midstream.state.keyed import GroupState
from midstream.state.keys import Rows

_CHUNK = 1 << 16
_MOMENT = 9  # bytes before the key in a timer


@dataclass(frozen=True)
class JoinTask(SlotTask):
    """Pairs the rows of a slot with those that are kept, and keeps them."""

    code: Code
    stages: tuple[Stage, ...]
    order_by: tuple[str, ...]

    def work(
        self, work: Work, rows: pa.RecordBatch, groups: npt.NDArray[np.int32], owned: frozenset[int]
    ) -> list[pa.RecordBatch]:
        """Process the rows of a slot, and drop what can match nothing any more."""
        join: Join = code.load(self.code)
        form = form_of(self.operator, self.stages)
        work.report.rows += rows.num_rows
        output, rows, groups = self._without_match(join, rows, groups)
        order = in_order(rows, self.order_by)
        rows, groups = rows.take(pa.array(order)), groups[order]
        codec, columns = self.codec(rows), [rows.column(key) for key in self.keys]
        arranged = codec.arrange(columns, groups)
        work.count_keys(columns, arranged)
        work.lap("sort")
        kept = KeptRows(join, form, list(arranged.keys), arranged.groups.tolist(), self.epoch.watermark)
        left, right = self._sides(work, join, kept, form, rows, arranged, owned)
        work.lap("read")
        pairs = _Pairs.of(join, left, right)
        stays = {
            side: self._stays(join, side, found, pairs.matched(side), kept.is_awake)
            for side, found in ((LEFT, left), (RIGHT, right))
        }
        work.lap("merge")
        starts = pa.array(arranged.order[arranged.starts])
        others = codec.decode(kept.keys[len(arranged.keys) :])
        keys = [pa.concat_arrays([c.take(starts), o.cast(c.type)]) for c, o in zip(columns, others, strict=True)]
        output += self._given_out(join, keys, left, right, *pairs.shown(join, stays))
        work.lap("emit")
        self._keep(kept, join, LEFT, left, pairs.matched(LEFT), stays[LEFT])
        self._keep(kept, join, RIGHT, right, pairs.matched(RIGHT), stays[RIGHT])
        kept.write_records()
        for group, state in kept.states.items():
            log_changes(work, group, state.changes)
            with work.cache.view(group).reader() as reader:
                state.read_from(reader)
                work.report.deadlines[group] = state.next_deadlines()
        work.lap("log")
        return output

    def _without_match(
        self, join: Join, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]
    ) -> tuple[list[pa.RecordBatch], pa.RecordBatch, npt.NDArray[np.int32]]:
        """Separate rows that match nothing, as in SQL: there is a null in the key, or no time where that counts.

        Returns what they emit, and the others.
        """
        needed = [*self.keys, *(["_time"] if join.is_bounded else [])]
        if not any(rows.column(name).null_count for name in needed):
            return [], rows, groups
        can = np.logical_and.reduce([rows.column(n).is_valid().to_numpy(zero_copy_only=False) for n in needed])
        is_shown = np.zeros(len(can), dtype=bool)
        for side in SIDES:
            if join.comes_alone(side):
                is_shown |= rows.column(f"_{side}").is_valid().to_numpy(zero_copy_only=False)
        apart = rows.filter(pa.array(~can & is_shown))
        columns = [apart.column(key) for key in self.keys]
        for side, width in zip(SIDES, join.widths, strict=True):
            columns += apart.column(f"_{side}").flatten()[:width]
        return [self._batch(columns)], rows.filter(pa.array(can)), groups[can]

    def _sides(
        self,
        work: Work,
        join: Join,
        kept: KeptRows,
        form: Form,
        rows: pa.RecordBatch,
        arranged: Rows,
        owned: frozenset[int],
    ) -> tuple[Side, Side]:
        """Read what new rows may match, and all rows of keys of which some are to be dropped."""
        owners, rows = segments(arranged), rows.take(pa.array(arranged.order))
        is_left = rows.column("_left").is_valid().to_numpy(zero_copy_only=False)
        times = rows.column("_time").cast(pa.int64()).fill_null(0).to_numpy()
        wanted = {}
        for side, others in ((LEFT, ~is_left), (RIGHT, is_left)):
            mask = np.zeros(len(arranged.keys), dtype=bool)
            mask[owners[others]] = True
            wanted[side] = mask.tolist()
        touched = {group: range(start, stop) for group, start, stop in spans(arranged)}
        for group in sorted({*touched, *(self.epoch.due & owned)}):
            store = work.cache.view(group)
            work.lap("apply")
            with store.reader() as reader:
                state, due = GroupState(form, reader, self.epoch.clock), list[bytes]()
                if group in self.epoch.due:
                    expire(state)
                    due = [timer[_MOMENT:] for timer in state.take_until(EVENT, self.epoch.watermark)]
                kept.read(state, group, touched.get(group, range(0)), wanted, due)
            work.lap("read")
        is_right = ~is_left
        is_right[is_right] = ~join.is_repeated(owners[is_right], times[is_right])
        left, right = (
            kept.side(side, owners[mine], times[mine], rows.column(f"_{side}").filter(pa.array(mine)))
            for side, mine in ((LEFT, is_left), (RIGHT, is_right))
        )
        return left, right

    def _stays(self, join: Join, side: str, rows: Side, matched: Mask, is_awake: Mask) -> Mask:
        """Which rows stay: they may still match something, and such a match would still be emitted."""
        stays = np.ones(len(rows.owners), dtype=bool)
        if side == LEFT and not join.gives_pairs:
            stays &= ~matched
        if join.is_bounded and self.epoch.watermark is not None:
            looked_at = rows.is_new | is_awake[rows.owners]
            stays &= ~looked_at | (join.deadlines(side, rows.times) > self.epoch.watermark)
        return stays

    def _given_out(
        self, join: Join, keys: list[pa.Array], left: Side, right: Side, lefts: Numbers, rights: Numbers
    ) -> Iterator[pa.RecordBatch]:
        """Make output rows from pairs: numbers of rows of both sides, -1 for none."""
        for at in range(0, len(lefts), _CHUNK):
            chosen = lefts[at : at + _CHUNK], rights[at : at + _CHUNK]
            owners = np.empty(len(chosen[0]), dtype=np.intp)
            for side, numbers in zip((left, right), chosen, strict=True):
                owners[numbers >= 0] = side.owners[numbers[numbers >= 0]]
            columns = [key.take(pa.array(owners)) for key in keys]
            for side, numbers, width in zip((left, right), chosen, join.widths, strict=True):
                taken = pa.array(numbers, mask=numbers < 0)
                columns += [column.take(taken) for column in side.columns[:width]]
            yield self._batch(columns)

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        schema = self.output_schema()
        cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.record_batch(cast, schema=schema)

    def _keep(self, kept: KeptRows, join: Join, side: str, rows: Side, matched: Mask, stays: Mask) -> None:
        """Change what is kept of a side."""
        stored, new = np.flatnonzero(stays[: rows.stored]), np.flatnonzero(stays & rows.is_new)
        kept.drop(side, rows, np.flatnonzero(~stays[: rows.stored]))
        is_noted = join.is_noted(side)
        if is_noted:
            kept.note_match(side, rows, stored[matched[stored] & rows.unmatched[stored]])
        kept.close_up(side, rows, stored)
        kept.extend(side, rows, new, matched[new].tolist() if is_noted else [None] * len(new), self.epoch.clock)
        if join.is_bounded:
            watched = np.concatenate([stored[kept.is_awake[rows.owners[stored]]], new])
            order = np.argsort(rows.owners[watched], kind="stable")
            owners, times = rows.owners[watched][order], rows.times[watched][order]
            owners, starts = np.unique(owners, return_index=True)
            if len(owners):
                deadlines = np.minimum.reduceat(join.deadlines(side, times), starts).tolist()
                latest = np.maximum.reduceat(times, starts).tolist()
                for owner, deadline, time in zip(owners.tolist(), deadlines, latest, strict=True):
                    kept.look_at(owner, deadline, time)


@dataclass(slots=True)
class _Pairs:
    """Rows of both sides that match, at least one of them new."""

    left: Side
    right: Side
    lefts: Numbers
    rights: Numbers

    @classmethod
    def of(cls, join: Join, left: Side, right: Side) -> _Pairs:
        """Find them: new rows of the left with all of the right, and kept ones with the new ones of the right."""
        old, new = np.arange(left.stored), np.arange(left.stored, len(left.owners))
        everything, fresh = np.arange(len(right.owners)), np.arange(right.stored, len(right.owners))
        low, high = join.reach(LEFT, left.times)
        found = [
            _matching(left, lefts, low, high, right, rights) for lefts, rights in ((new, everything), (old, fresh))
        ]
        lefts, rights = (np.concatenate(part) for part in zip(*found, strict=True))
        return cls(left, right, lefts, rights)

    def matched(self, side: str) -> Mask:
        """Which rows of a side have had a match in this epoch."""
        rows, numbers = (self.left, self.lefts) if side == LEFT else (self.right, self.rights)
        found = np.zeros(len(rows.owners), dtype=bool)
        found[numbers] = True
        return found

    def shown(self, join: Join, stays: dict[str, Mask]) -> tuple[Numbers, Numbers]:
        """The output: the numbers of rows of both sides, -1 for none."""
        lefts, rights = [self.lefts], [self.rights]
        if not join.gives_pairs:
            lefts = [np.flatnonzero(self.matched(LEFT)) if join.how == "semi" else np.zeros(0, np.intp)]
            rights = [np.full(len(lefts[0]), -1)]
        for side, rows in ((LEFT, self.left), (RIGHT, self.right)):
            if join.comes_alone(side):
                unmatched = np.concatenate([rows.unmatched, np.ones(len(rows.owners) - rows.stored, dtype=bool)])
                alone = np.flatnonzero(unmatched & ~self.matched(side) & ~stays[side])
                lefts.append(alone if side == LEFT else np.full(len(alone), -1))
                rights.append(alone if side == RIGHT else np.full(len(alone), -1))
        return np.concatenate(lefts), np.concatenate(rights)


def _matching(
    left: Side, lefts: Numbers, low: Times, high: Times, right: Side, rights: Numbers
) -> tuple[Numbers, Numbers]:
    """Pair some rows of the left with those of the right that have the same key and a time within bounds."""
    times, ranks = np.unique(right.times[rights], return_inverse=True)
    step = len(times) + 1  # key and time as one number
    codes = right.owners[rights] * step + ranks
    order = np.argsort(codes, kind="stable")
    base = left.owners[lefts] * step
    first = np.searchsorted(codes[order], base + np.searchsorted(times, low[lefts], side="left"))
    last = np.searchsorted(codes[order], base + np.searchsorted(times, high[lefts], side="right"))
    counts = last - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(lefts, counts), rights[order[np.repeat(first, counts) + within]]
