"""Which rows begin a window by count, and when windows end: the rows of a key are numbered, and windows are lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.functions.declare import state_fields
from midstream.operators.windows.by_count.rules import CountPart, CountResult, CountWindows, Key, Open
from midstream.plan.windows import CountWindow

SHAPES = st.sampled_from([(1, 1), (2, 2), (3, 3), (3, 1), (4, 3), (5, 2)])
EPOCHS = st.lists(st.lists(st.booleans(), max_size=7), max_size=6)  # of each row: whether it ends all windows


def rules(size: int, step: int, parts: tuple[CountPart, ...] = ()) -> CountWindows:
    return CountWindows(CountWindow(size, step), 1, parts, ())


def new_key() -> Key:
    return Key(0, b"k", seen=0, following=0, begun=0, ended=0, open=[], panes=[])


def following(key: Key, rows: int) -> Key:
    """The key as the next epoch finds it."""
    return Key(
        0, b"k", seen=key.seen + key.rows, following=key.following, begun=key.begun, ended=key.ended,
        open=key.open, panes=[], rows=rows,
    )  # fmt: skip


def one_by_one(shape: tuple[int, int], rows: list[bool]) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Windows that are over: number, first row, row before which it ends; and those that are open."""
    size, step = shape
    begun, over, since = list[list[int]](), list[tuple[int, int, int]](), 0
    open_ = list[int]()  # numbers
    for row, ends_all in enumerate(rows):
        if not open_ or (step < size and row - since >= step):
            begun.append([])
            open_.append(len(begun) - 1)
            since = row
        for number in list(open_):
            begun[number].append(row)
            if len(begun[number]) == size or ends_all:
                over.append((number, begun[number][0], row + 1))
                open_.remove(number)
    return sorted(over), [(number, begun[number][0]) for number in open_]


@given(SHAPES, EPOCHS)
def test_windows_begin_and_end_as_if_rows_came_one_by_one(shape: tuple[int, int], epochs: list[list[bool]]):
    key, made, over = new_key(), rules(*shape), list[tuple[int, int, int]]()
    for rows in epochs:
        key = following(key, len(rows))
        key.take_rows(made, [at + 1 for at, ends in enumerate(rows) if ends])
        over += [(window.number, window.begin, end) for window, end in key.over]
        assert {window.size for window in key.open} <= {shape[0]}
    expected, still = one_by_one(shape, [ends for rows in epochs for ends in rows])
    assert sorted(over) == expected
    assert [(window.number, window.begin) for window in key.open] == still


def test_a_pane_begins_wherever_a_window_begins_or_has_ended():
    key = following(new_key(), 7)
    key.take_rows(rules(4, 3), [])
    assert sorted(set(key.cuts)) == [0, 3, 4, 6]
    key = following(key, 2)
    key.take_rows(rules(4, 3), [])
    assert sorted(set(key.cuts)) == [7], "the window of row 3 ended there, in the epoch before"


def test_an_open_window_keeps_its_size_and_the_next_one_begins_by_the_new_step():
    key = following(new_key(), 2)
    key.take_rows(rules(5, 5), [])
    key = following(key, 5)
    key.take_rows(rules(2, 1), [])
    assert [(window.begin, window.size, end) for window, end in key.over] == [
        (0, 5, 5), (2, 2, 4), (3, 2, 5), (4, 2, 6), (5, 2, 7),
    ]  # fmt: skip
    assert key.open == [Open(5, 6, 2)]


def test_windows_whose_time_is_over_end_behind_all_rows_and_others_stay():
    key = following(new_key(), 3)
    key.open = [Open(0, 0, 9, until=10), Open(1, 1, 9, until=11), Open(2, 2, 9)]
    key.end_until(10)
    assert key.over == [(Open(0, 0, 9, until=10), 3)]
    assert [window.number for window in key.open] == [1, 2]


def test_kept_panes_come_before_the_rows_of_the_epoch():
    key = Key(0, b"k", seen=6, following=2, begun=3, ended=0, open=[], panes=[[0, "x"], [3, "y"]], rows=4)
    assert [key.place(begin) for begin in (0, 3, 6, 9)] == [0, 1, 2, 5]


@pytest.mark.parametrize(
    ("function", "expected"),
    [("count", [2, 0, 3]), ("sum", [10.0, None, 9.0]), ("mean", [5.0, None, 3.0]), ("max", [7.0, 0.0, 4.0])],
)
def test_a_result_of_no_values_is_null_but_for_a_count(function: str, expected: list[Any]):
    parts = [pa.array([2, 0, 3]), pa.array([10.0, 0.0, 9.0]), pa.array([7.0, 0.0, 4.0])]
    at = {"count": 0, "sum": 1, "mean": 1, "max": 2}[function]
    assert CountResult(function, at, 0).of(parts).to_pylist() == expected


def test_what_is_kept_has_a_column_for_each_part():
    parts = (CountPart("count", "", "bigint"), CountPart("sum", "n", "bigint"))
    assert [part.name for part in parts] == ["count", "sum n"]
    assert [CountPart(how, "n", "").is_added for how in ("count", "sum", "total", "min", "max", "first", "last")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip
    types = {field.name: field.type for field in state_fields(rules(3, 3, parts))}
    assert types["panes"] == "array<struct<begin:bigint,count:bigint,`sum n`:bigint>>"
    assert list(types) == ["seen", "following", "begun", "ended", "open", "panes"]


@given(SHAPES, st.integers(0, 20), st.integers(0, 20))
def test_the_rows_that_begin_a_window_are_the_step_apart(shape: tuple[int, int], seen: int, rows: int):
    found = rules(*shape).begins([], -1000, seen, seen + rows)
    assert list(found) == list(range(seen, seen + rows, shape[1]))
    assert np.all(np.diff(found) == shape[1])
