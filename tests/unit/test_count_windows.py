"""Windows by count against their definition: all rows of a key in a list; without Spark."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.code import capture
from midstream.count_windows import CountWindows, Part
from midstream.errors import PlanError
from midstream.state.wire import moment_of
from midstream.windows import END_OF_TIME, CountWindow, count_window
from tests.function_runner import Runner

PARTS = (
    Part("count", None, "bigint", "bigint"),
    Part("count", 1, "bigint", "bigint"),
    Part("sum", 1, "bigint", "bigint"),
    Part("mean", 1, "array<double>", "double"),
    Part("min", 1, "bigint", "bigint"),
    Part("max", 1, "bigint", "bigint"),
    Part("first", 1, "bigint", "bigint"),
    Part("last", 1, "bigint", "bigint"),
)
KEPT = [pa.list_(pa.float64()) if part.function == "mean" else pa.int64() for part in PARTS]
MOMENT = pa.timestamp("us", tz="UTC")
WINDOW = pa.struct(
    [
        *((name, pa.int64()) for name in ("number", "rows", "size")),
        ("until", MOMENT),
        *((f"part{i}", t) for i, t in enumerate(KEPT)),
    ]
)
TYPES = {"following": pa.int64(), "since": pa.int64(), "open": pa.list_(WINDOW)}
Row = tuple[str, int | None, int | None]  # key, a number, event time


def shown(key: str, number: int, rows: list[Row]) -> tuple[Any, ...]:
    there = [n for _, n, _ in rows if n is not None]
    mean, low, high = (sum(there) / len(there), min(there), max(there)) if there else (None, None, None)
    return key, number, len(rows), len(there), sum(there) if there else None, mean, low, high, rows[0][1], rows[-1][1]


class Naive:
    """Keeps the rows of windows; which are open is said again for every row."""

    def __init__(self, window: CountWindow) -> None:
        self.window = window
        self.begun: dict[str, list[list[Row]]] = defaultdict(list)  # all windows of a key, whether open or not
        self.sizes: dict[str, list[int]] = defaultdict(list)  # that they began with
        self.over: set[tuple[str, int]] = set()

    def epoch(self, rows: list[Row], watermark: int | None, ends: int | None = None) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for row in rows:
            windows = self.begun[row[0]]
            numbers = [i for i in range(len(windows)) if (row[0], i) not in self.over]
            overlap = self.window.step < self.window.size
            if not numbers or (overlap and len(windows[-1]) >= self.window.step):
                windows.append([])
                self.sizes[row[0]].append(self.window.size)
                numbers.append(len(windows) - 1)
            for i in numbers:
                windows[i].append(row)
                if len(windows[i]) == self.sizes[row[0]][i] or (ends is not None and row[1] == ends):
                    found[shown(row[0], i, windows[i])] += 1
                    self.over.add((row[0], i))
        for key, windows in self.begun.items():
            for i, kept in enumerate(windows):
                times = [at for _, _, at in kept if at is not None]
                done = watermark is not None and times and self.window.timeout and times[0] + self.window.timeout
                if (key, i) not in self.over and done and watermark is not None and done <= watermark:
                    found[shown(key, i, kept)] += 1
                    self.over.add((key, i))
        return found


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.one_of(st.none(), st.integers(-9, 9)), st.one_of(st.none(), st.integers(0, 60))
    ),
    max_size=8,
)


@given(
    shape=st.sampled_from([(1, 1), (3, 3), (3, 1), (4, 3), (5, 2)]),
    timeout=st.sampled_from([0, 5, 30]),
    epochs=st.lists(ROWS, max_size=8),
)
def test_every_epoch_gives_out_what_the_definition_says(
    shape: tuple[int, int], timeout: int, epochs: list[list[Row]]
) -> None:
    window = CountWindow(*shape, timeout)
    naive, runner = Naive(window), Runner(CountWindows(window, 1, PARTS), TYPES, time_at=2)
    greatest: int | None = None
    for rows in [*epochs, []]:
        given_ = [(row[0], (*row[:2], None if row[2] is None else moment_of(row[2]))) for row in rows]
        assert Counter(runner.epoch(given_, greatest)) == naive.epoch(rows, greatest)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest or 0])
    assert Counter(runner.epoch([], END_OF_TIME)) == naive.epoch([], END_OF_TIME)


@given(
    shape=st.sampled_from([(1, 1), (3, 3), (3, 1), (5, 2)]),
    timeout=st.sampled_from([0, 30]),
    epochs=st.lists(ROWS, max_size=8),
)
def test_a_row_ends_the_windows_of_its_key(shape: tuple[int, int], timeout: int, epochs: list[list[Row]]) -> None:
    window = CountWindow(*shape, timeout)
    naive, runner = Naive(window), Runner(CountWindows(window, 1, PARTS, ends=3), TYPES, time_at=2)
    greatest = 0
    for rows in [*epochs, []]:
        given_ = [(row[0], (*row[:2], None if row[2] is None else moment_of(row[2]), row[1] == 5)) for row in rows]
        assert Counter(runner.epoch(given_, greatest)) == naive.epoch(rows, greatest, ends=5)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest])
    assert Counter(runner.epoch([], END_OF_TIME)) == naive.epoch([], END_OF_TIME)


@given(
    shapes=st.lists(st.sampled_from([(1, 1), (3, 3), (3, 1), (4, 3), (5, 2)]), min_size=2, max_size=4),
    timeout=st.sampled_from([0, 30]),
    epochs=st.lists(ROWS, max_size=12),
)
def test_windows_that_are_open_keep_their_size_when_it_is_changed(
    shapes: list[tuple[int, int]], timeout: int, epochs: list[list[Row]]
) -> None:
    windows = [CountWindow(*shape, timeout) for shape in shapes]
    naive, runner = Naive(windows[0]), Runner(CountWindows(windows[0], 1, PARTS), TYPES, time_at=2)
    greatest = 0
    for number, rows in enumerate([*epochs, []]):
        naive.window = windows[number // 3 % len(windows)]
        runner.function = CountWindows(naive.window, 1, PARTS)
        given_ = [(row[0], (*row[:2], None if row[2] is None else moment_of(row[2]))) for row in rows]
        assert Counter(runner.epoch(given_, greatest)) == naive.epoch(rows, greatest)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest])
    assert Counter(runner.epoch([], END_OF_TIME)) == naive.epoch([], END_OF_TIME)


def test_without_event_time_the_clock_counts_and_the_end_of_the_input() -> None:
    runner = Runner(CountWindows(count_window(3, timeout=0.00001), 1, PARTS[:1]), TYPES_OF_ONE)
    assert runner.epoch([("a", ()), ("b", ())], None, now=0) == []
    assert runner.epoch([("b", ()), ("b", ())], None, now=5) == [("b", 0, 3)]
    assert runner.epoch([], None, now=9) == []
    assert runner.epoch([("b", ())], None, now=10) == [("a", 0, 1)]
    assert runner.epoch([], END_OF_TIME, now=11) == [("b", 1, 1)]


TYPES_OF_ONE = TYPES | {"open": pa.list_(pa.struct(list(WINDOW)[:5]))}


@pytest.mark.parametrize(("size", "step"), [(0, None), (3, 4), (3, 0)])
def test_windows_that_would_hold_nothing_or_leave_rows_out_are_refused(size: int, step: int | None) -> None:
    with pytest.raises(PlanError, match="a step between 1 and it"):
        count_window(size, step)


def test_a_plan_sees_that_other_aggregates_are_kept() -> None:
    least, greatest = (
        capture(CountWindows(count_window(3), 1, (Part(function, 1, "bigint", "bigint"),)), what="it", shipped=True)
        for function in ("min", "max")
    )
    assert least.digest != greatest.digest


def test_values_that_are_not_numbers_count_as_they_do_in_spark() -> None:
    inf, nan = float("inf"), float("nan")
    kinds = {"sum": "double", "mean": "array<double>", "min": "double", "max": "double"}
    parts = tuple(Part(function, 1, kept, "double") for function, kept in kinds.items())
    types = [pa.list_(pa.float64()) if part.function == "mean" else pa.float64() for part in parts]
    window = pa.struct([*list(WINDOW)[:4], *((f"part{i}", type) for i, type in enumerate(types))])
    runner = Runner(CountWindows(count_window(3), 1, parts), TYPES | {"open": pa.list_(window)})
    assert runner.epoch([("a", ("a", inf)), ("a", ("a", 1.0))], None) == []
    assert runner.epoch([("a", ("a", None))], None) == [("a", 0, inf, inf, 1.0, inf)]
    ((_, _, *found),) = runner.epoch([("a", ("a", value)) for value in (nan, 2.0, 1.0)], None)
    assert [math.isnan(value) for value in found] == [True, True, False, True]
    assert found[2] == 1.0
