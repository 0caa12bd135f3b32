"""The rows of open windows by count, in panes: all keys of a slot side by side, folded column by column.

What is folded are *items*: of each key, the panes that were kept, and then the rows of this epoch, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.operators.aggregates.merge import EXACT, fitting, guard
from midstream.operators.windows.by_count.rules import CountPart, Key
from midstream.state.values import Wire

Numbers = npt.NDArray[Any]


@dataclass(slots=True)
class CountPanes:
    """The panes that items become."""

    bases: Numbers  # where the items of each key begin
    starts: Numbers  # the items with which panes begin
    begins: Numbers  # with which row of its key each pane begins
    columns: list[_Column]

    @classmethod
    def of(cls, parts: Sequence[CountPart], type: pa.StructType, keys: list[Key], rows: pa.RecordBatch) -> CountPanes:
        """Fold what was kept and the rows; these are in the order of their keys, the keys that have none last."""
        kept, added = (np.array(n, np.int64) for n in ([len(key.panes) for key in keys], [key.rows for key in keys]))
        bases = np.cumsum(kept + added) - kept - added
        owners = np.concatenate([np.repeat(np.arange(len(keys)), some) for some in (kept, added)])
        order = np.argsort(owners, kind="stable")
        cuts = [base + key.place(cut) for base, key in zip(bases.tolist(), keys, strict=True) for cut in key.cuts]
        starts = np.unique(np.concatenate([ranges(bases, kept), np.array(cuts, np.int64)]))
        stored = list(zip(*(pane for key in keys for pane in key.panes), strict=True)) or [()] * (1 + len(parts))
        numbered = ranges(np.array([key.seen for key in keys], np.int64), added)
        begins = np.concatenate([np.array(stored[0], np.int64), numbered])[order[starts]]
        columns = []
        for part, values in zip(parts, stored[1:], strict=True):
            wire = Wire(type.field(part.name).type, part.name)
            items = pa.concat_arrays([wire.array(values), _given(part, wire.type, rows)]).take(pa.array(order))
            columns.append(_Column(part, wire, items, starts))
        return cls(bases, starts, begins, columns)

    def before(self, items: Numbers) -> Numbers:
        """How many panes begin before each of some items."""
        return np.searchsorted(self.starts, items)

    def merged(self, lows: Numbers, highs: Numbers) -> list[pa.Array]:
        """Merge panes, from each low to its high."""
        lengths = highs - lows
        chosen, starts = ranges(lows, lengths), np.cumsum(lengths) - lengths
        return [column.shown(column.folded(column.panes[chosen], starts)) for column in self.columns]

    def packed(self, chosen: Numbers) -> list[list[Any]]:
        """Some panes as they are kept."""
        columns = [column.wire.stored(column.shown(column.panes[chosen])) for column in self.columns]
        return [list(pane) for pane in zip(self.begins[chosen].tolist(), *columns, strict=True)]


class _Column:
    """One part of all panes: as numbers that can be folded, and back."""

    def __init__(self, part: CountPart, wire: Wire, items: pa.Array, starts: Numbers) -> None:
        self.wire, self._part, self._items = wire, part, items
        if part.is_added:
            numbers = items.to_numpy(zero_copy_only=False)
        elif part.how in ("min", "max"):  # of any type: by their rank, NaN above all other numbers
            plain = pc.add(items, 0.0) if pa.types.is_floating(items.type) else items  # -0.0 is 0.0
            numbers = pc.rank(plain, tiebreaker="dense").to_numpy().astype(np.int64)
            if part.how == "max":
                numbers[items.is_null().to_numpy(zero_copy_only=False)] = 0  # a missing value loses
            self._items, self._ranked = plain, np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
            self._ranked[numbers] = np.arange(len(items))
        else:
            numbers = np.arange(len(items))
        self.panes = self.folded(numbers, starts)

    def folded(self, numbers: Numbers, starts: Numbers) -> Numbers:
        """Fold numbers, from each start to the next."""
        how = self._part.how
        found: Numbers
        if how == "first" or not len(starts):
            found = numbers[starts]
        elif how == "last":
            found = numbers[np.append(starts[1:], len(numbers)) - 1]
        elif how in ("min", "max"):
            found = (np.minimum if how == "min" else np.maximum).reduceat(numbers, starts)
        elif numbers.dtype.kind == "f":  # one after the other, as if epochs had ended elsewhere
            found = np.bincount(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(numbers))), numbers)
        elif numbers.dtype.kind == "O":  # decimals
            with localcontext(EXACT):
                found = np.add.reduceat(numbers, starts)
        else:
            guard(self._part.name, numbers, starts)
            found = np.add.reduceat(numbers, starts)
        return found

    def shown(self, numbers: Numbers) -> pa.Array:
        """Turn numbers back into values."""
        if self._part.is_added:
            return fitting(self._part.name, numbers, self.wire.type)
        return self._items.take(pa.array(self._ranked[numbers] if self._part.how in ("min", "max") else numbers))


def _given(part: CountPart, type: pa.DataType, rows: pa.RecordBatch) -> pa.Array:
    """The value of each row for a part."""
    if not part.column:
        return pa.array(np.ones(rows.num_rows, np.int64))
    column = rows.column(part.column)
    if part.how == "count":
        return column.is_valid().cast(type)
    given = column.cast(type, safe=part.how != "total")  # a large number is rounded
    return given.fill_null(0) if part.is_added else given


def ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The numbers from each start on, as many as asked, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
