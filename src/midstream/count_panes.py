"""The rows of open windows by count, in panes: all keys of a slot side by side, folded column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.aggregation import guard
from midstream.count_rules import CountWindows, Kept, Key
from midstream.state.forms import Form
from midstream.state.wire import Wire

Numbers = npt.NDArray[Any]


@dataclass(slots=True)
class Panes:
    """The panes that were kept and the rows of this epoch, key by key, and the panes that they become."""

    bases: Numbers  # where the items of each key begin
    begins: Numbers  # the number of the first row of each item, in its key
    starts: Numbers  # the items with which panes begin
    columns: list[_Column]
    folded: list[Numbers]  # each column of the panes

    @classmethod
    def of(cls, windows: CountWindows, form: Form, keys: list[Key], rows: pa.RecordBatch, owners: Numbers) -> Panes:
        """Put items in order, and fold them."""
        panes, rows_of = (
            np.array(sizes, np.int64) for sizes in zip(*((len(k.panes), k.rows) for k in keys), strict=True)
        )
        bases = np.cumsum(panes + rows_of) - panes - rows_of
        order = np.argsort(np.concatenate([np.repeat(np.arange(len(keys)), panes), owners]), kind="stable")
        is_start = np.zeros(len(order), dtype=bool)
        is_start[ranges(bases, panes)] = True
        cuts = [(owner, key.place(cut)) for owner, key in enumerate(keys) for cut in key.cuts]
        is_start[[bases[owner] + place for owner, place in cuts]] = True
        stored = list(zip(*(pane for key in keys for pane in key.panes), strict=True)) or [()] * (1 + len(windows.kept))
        behind = np.array([key.seen - key.first for key in keys], np.int64)  # rows that came before those at hand
        begins = np.concatenate([np.array(stored[0], np.int64), behind[owners] + np.arange(rows.num_rows)])[order]
        starts, type, columns = np.flatnonzero(is_start), form.wires[form.index["panes"]].type.value_type, []
        for i, kept in enumerate(windows.kept):
            wire = Wire(type.field(f"part{i}").type, f"part {i}")
            both = pa.concat_arrays([wire.array(stored[1 + i]), _lifted(kept, wire.type, rows)])
            columns.append(_Column(kept, wire, both.take(pa.array(order))))
        return cls(bases, begins, starts, columns, [column.folded(column.numbers, starts) for column in columns])

    def before(self, items: Numbers) -> Numbers:
        """How many panes begin before each of some items."""
        return np.searchsorted(self.starts, items)

    def merged(self, lows: Numbers, highs: Numbers) -> list[pa.Array]:
        """Put panes together, from each low to its high."""
        lengths = highs - lows
        chosen, starts = ranges(lows, lengths), np.cumsum(lengths) - lengths
        return [
            column.shown(column.folded(panes[chosen], starts))
            for column, panes in zip(self.columns, self.folded, strict=True)
        ]

    def stored(self, panes: Numbers) -> list[list[Any]]:
        """Some panes as they are kept."""
        columns = [
            column.wire.stored(column.shown(folded[panes]))
            for column, folded in zip(self.columns, self.folded, strict=True)
        ]
        return [list(pane) for pane in zip(self.begins[self.starts[panes]].tolist(), *columns, strict=True)]


class _Column:
    """One of the parts of which results are made: as numbers that can be folded, and back."""

    def __init__(self, kept: Kept, wire: Wire, items: pa.Array) -> None:
        self.wire, self._kept, self._items = wire, kept, items
        if kept.is_added:
            self.numbers = items.to_numpy(zero_copy_only=False)
        elif kept.how in ("min", "max"):  # of any type: by their rank, NaN above all other numbers
            plain = pc.add(items, 0.0) if pa.types.is_floating(items.type) else items  # -0.0 is 0.0
            self.numbers = pc.rank(plain, tiebreaker="dense").to_numpy().astype(np.int64)
            if kept.how == "max":
                self.numbers[items.is_null().to_numpy(zero_copy_only=False)] = 0  # what is not there loses
            self._items, self._ranked = plain, np.zeros(int(self.numbers.max(initial=0)) + 1, np.int64)
            self._ranked[self.numbers] = np.arange(len(items))
        else:
            self.numbers = np.arange(len(items))

    def folded(self, numbers: Numbers, starts: Numbers) -> Numbers:
        """Fold the numbers from each start to the next."""
        how = self._kept.how
        found: Numbers
        if how == "first" or not len(starts):
            found = numbers[starts]
        elif how == "last":
            found = numbers[np.append(starts[1:], len(numbers)) - 1]
        elif how in ("min", "max"):
            found = (np.minimum if how == "min" else np.maximum).reduceat(numbers, starts)
        elif numbers.dtype.kind == "f":  # one after the other: it does not matter where epochs end
            found = np.bincount(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(numbers))), numbers)
        else:
            guard(f"{how} of {self._kept.column!r}", numbers, starts)
            found = np.add.reduceat(numbers, starts)
        return found

    def shown(self, numbers: Numbers) -> pa.Array:
        """Turn numbers back into values."""
        if self._kept.is_added:
            return pa.array(numbers)
        chosen = self._ranked[numbers] if self._kept.how in ("min", "max") else numbers
        return self._items.take(pa.array(chosen))


def _lifted(kept: Kept, type: pa.DataType, rows: pa.RecordBatch) -> pa.Array:
    """What rows give to a part, each on its own."""
    if not kept.column:
        return pa.array(np.ones(rows.num_rows, np.int64))
    column = rows.column(kept.column)
    if kept.how == "count":
        return column.is_valid().cast(type)
    return column.cast(type).fill_null(0) if kept.how == "sum" else column.cast(type)


def ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The numbers from each start on, so many, one range behind the other."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
