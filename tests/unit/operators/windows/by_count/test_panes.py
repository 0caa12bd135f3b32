"""Panes of windows by count: what was kept and what comes, folded, against plain lists."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.windows.by_count.panes import CountPanes, ranges
from midstream.operators.windows.by_count.rules import CountPart, Key

HOWS = ("count", "sum", "min", "max", "first", "last")
PARTS = tuple(CountPart(how, "n", "bigint") for how in HOWS)
TYPE = pa.struct([("begin", pa.int64()), *((part.name, pa.int64()) for part in PARTS)])
VALUES = st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=6)
KEYS = st.lists(st.tuples(VALUES, VALUES, st.sets(st.integers(0, 11))), max_size=4)  # kept, new, where panes begin


def folded(values: list[int | None]) -> list[Any]:
    """What all parts are, of some values."""
    there = [value for value in values if value is not None]
    return [len(there), sum(there), min(there, default=None), max(there, default=None), values[0], values[-1]]


def drawn(keys: list[tuple[list[Any], list[Any], set[int]]]) -> tuple[list[Key], pa.RecordBatch, list[list[list[Any]]]]:
    """Keys, each of whose kept rows is a pane by itself; the new rows; and the values of the panes that are to be."""
    made, rows, expected = [], list[Any](), []
    for number, (kept, new, cuts) in enumerate(keys):
        seen = len(kept)
        begins = sorted({seen + cut for cut in cuts if cut < len(new)} | ({seen} if new else set()))
        panes = [[at, *folded([value])] for at, value in enumerate(kept)]
        key = Key(number, b"", seen=seen, following=0, begun=0, ended=0, open=[], panes=panes, rows=len(new))
        key.cuts = begins
        edges = [*range(seen), *begins, seen + len(new)]
        every = [*kept, *new]
        expected.append([every[a:b] for a, b in pairwise(edges) if b > a])
        made.append(key)
        rows += new
    return made, pa.record_batch([pa.array(rows, pa.int64())], names=["n"]), expected


@given(KEYS)
def test_panes_hold_what_was_kept_and_the_rows_from_each_cut_to_the_next(keys: list[Any]):
    made, rows, expected = drawn(keys)
    panes = CountPanes.of(PARTS, TYPE, made, rows)
    values = [pane for of_key in expected for pane in of_key]
    assert [pane[1:] for pane in panes.packed(np.arange(len(panes.starts)))] == [folded(pane) for pane in values]
    begins = [at for of_key in expected for at in np.cumsum([0, *map(len, of_key)])[:-1].tolist()]
    assert panes.begins.tolist() == begins
    bases = np.cumsum([0, *(len(kept) + len(new) for kept, new, _ in keys)])[:-1]
    assert panes.bases.tolist() == bases.tolist()


@given(KEYS, st.data())
def test_windows_are_panes_put_together(keys: list[Any], data: st.DataObject):
    made, rows, expected = drawn(keys)
    panes = CountPanes.of(PARTS, TYPE, made, rows)
    values = [pane for of_key in expected for pane in of_key]
    spans = data.draw(st.lists(st.tuples(st.integers(0, len(values)), st.integers(0, len(values)))))
    spans = [(low, high) for low, high in spans if low < high]
    lows, highs = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    found = zip(*(column.to_pylist() for column in panes.merged(lows, highs)), strict=True)
    assert [list(row) for row in found] == [
        folded([value for pane in values[low:high] for value in pane]) for low, high in spans
    ]


@given(KEYS)
def test_the_panes_before_an_item_are_counted(keys: list[Any]):
    made, rows, _ = drawn(keys)
    panes = CountPanes.of(PARTS, TYPE, made, rows)
    items = np.arange(sum(len(kept) + len(new) for kept, new, _ in keys) + 1)
    assert panes.before(items).tolist() == [sum(start < item for start in panes.starts.tolist()) for item in items]


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 4))))
def test_ranges_follow_each_other(given: list[tuple[int, int]]):
    starts, lengths = (np.array([pair[i] for pair in given], np.int64) for i in (0, 1))
    assert ranges(starts, lengths).tolist() == [n for start, length in given for n in range(start, start + length)]
