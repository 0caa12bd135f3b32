"""Windows by count against their definition: all rows of a key in a list; without Spark."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream.errors import PlanError, StateError
from midstream.operators.functions.declare import state_fields
from midstream.operators.task import Epoch, Work
from midstream.operators.windows.by_count.rules import ENDS, CountPart, CountResult, CountWindows
from midstream.operators.windows.by_count.task import CountTask
from midstream.plan.code import Code, capture
from midstream.plan.plan import StateField
from midstream.plan.routing import Routing
from midstream.plan.windows import END_OF_TIME, CountWindow, count_window
from midstream.state.entries import Stage, form_of
from midstream.state.history import Head
from midstream.state.keyed import GroupState
from midstream.state.keys import KeyCodec
from midstream.state.stores.contract import Version
from midstream.state.stores.memory import MemoryStore
from tests.support.counting import Naive, Row
from tests.support.edits import Edits
from tests.support.join_slot import Stores

MOMENT = pa.timestamp("us", tz="UTC")
COUNTED, THERE, SUM = (
    CountPart("count", "", "bigint"),
    CountPart("count", "n", "bigint"),
    CountPart("sum", "n", "bigint"),
)
PARTS = (
    COUNTED,
    THERE,
    SUM,
    CountPart("total", "n", "double"),
    *(CountPart(how, "n", "bigint") for how in ("min", "max", "first", "last")),
)
RESULTS = (
    CountResult("count", 0), CountResult("count", 1), CountResult("sum", 2, 1), CountResult("mean", 3, 1),
    CountResult("min", 4), CountResult("max", 5), CountResult("first", 6), CountResult("last", 7),
)  # fmt: skip


class Runner:
    """Runs the task over a store in memory, epoch by epoch; rows are taken in the order in which they are given."""

    def __init__(self, windows: CountWindows, number: pa.DataType | None = None, *, timed: bool = True) -> None:
        self.windows, self.store, self.number, self.timed = windows, MemoryStore(), number or pa.int64(), timed
        self.form: tuple[int, Code | None] = (0, None)  # where the state lies, and how it comes from the older one
        self.older: tuple[Stage, ...] = ()
        self.deadlines: tuple[int | None, int | None] = (None, None)

    def epoch(self, rows: list[Row], watermark: int | None, now: int = 0, ends: int | None = None) -> list[Any]:
        """Process rows; whatever is due by the watermark and the clock is done too."""
        reached = zip(self.deadlines, (watermark, now), strict=True)
        is_due = any(due is not None and at is not None and due <= at for due, at in reached)
        epoch = Epoch(1, now, "", watermark, due=frozenset({0} if is_due else ()))
        task = CountTask(
            "c", Head("job", "c", "", "", 0, (None,)), epoch, "", "", bytes(self.output().serialize()), ("key",),
            Routing.even(1, 1), shipped(self.windows),
            (Stage(state_fields(self.windows), bytes(self.types().serialize()), *self.form), *self.older), (),
            "at" if self.timed else None,
        )  # fmt: skip
        work, batch = Work(0, Stores(self.store)), self.batch(rows, ends)  # type: ignore[arg-type]
        found = task.work(work, batch, np.zeros(len(rows), np.int32), frozenset({0}))
        self.deadlines = work.report.deadlines.get(0, self.deadlines)
        self.store.apply([Edits(changes) for changes in work.log.take().values()], Version("job", 1, "c"))
        return [tuple(row.values()) for batch in found for row in batch.to_pylist()]

    def batch(self, rows: list[Row], ends: int | None) -> pa.RecordBatch:
        columns = {
            "key": pa.array([row[0] for row in rows], pa.string()),
            "n": pa.array([row[1] for row in rows], self.number),
            "at": pa.array([row[2] for row in rows], pa.int64()).cast(MOMENT),
            "_order": pa.array(range(len(rows)), pa.int64()),
            "_tie": pa.array([0] * len(rows), pa.int64()),
        }
        if ends is not None:
            columns[ENDS] = pa.array([row[1] == ends for row in rows], pa.bool_())
        return pa.record_batch(columns)

    def output(self) -> pa.Schema:
        types = {"count": pa.int64(), "mean": pa.float64()}
        results = [(f"r{i}", types.get(r.function, self.number)) for i, r in enumerate(self.windows.results)]
        return pa.schema([("key", pa.string()), ("window", pa.int64()), *results])

    def types(self) -> pa.Schema:
        kinds = {"count": pa.int64(), "total": pa.float64()}
        kept = [(part.name, kinds.get(part.how, self.number)) for part in self.windows.parts]
        window = pa.struct([*((name, pa.int64()) for name in ("number", "begin", "size")), ("until", MOMENT)])
        numbers = [(name, pa.int64()) for name in ("seen", "following", "begun", "ended")]
        pane = pa.struct([("begin", pa.int64()), *kept])
        return pa.schema([*numbers, ("open", pa.list_(window)), ("panes", pa.list_(pane))])


@cache
def shipped(windows: CountWindows) -> Code:
    return capture(windows, what="windows", shipped=True)


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
    naive, runner = Naive(window), Runner(CountWindows(window, 1, PARTS, RESULTS))
    greatest: int | None = None
    for rows in [*epochs, []]:
        assert Counter(runner.epoch(rows, greatest)) == naive.epoch(rows, greatest)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest or 0])
    assert Counter(runner.epoch([], END_OF_TIME)) == naive.epoch([], END_OF_TIME)


@given(
    shape=st.sampled_from([(1, 1), (3, 3), (3, 1), (5, 2)]),
    timeout=st.sampled_from([0, 30]),
    epochs=st.lists(ROWS, max_size=8),
)
def test_a_row_ends_the_windows_of_its_key(shape: tuple[int, int], timeout: int, epochs: list[list[Row]]) -> None:
    window = CountWindow(*shape, timeout)
    naive, runner = Naive(window), Runner(CountWindows(window, 1, PARTS, RESULTS, ends=True))
    greatest = 0
    for rows in [*epochs, []]:
        assert Counter(runner.epoch(rows, greatest, ends=5)) == naive.epoch(rows, greatest, ends=5)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest])
    assert Counter(runner.epoch([], END_OF_TIME, ends=5)) == naive.epoch([], END_OF_TIME)


@given(
    shapes=st.lists(st.sampled_from([(1, 1), (3, 3), (3, 1), (4, 3), (5, 2)]), min_size=2, max_size=4),
    timeout=st.sampled_from([0, 30]),
    epochs=st.lists(ROWS, max_size=12),
)
def test_windows_that_are_open_keep_their_size_when_it_is_changed(
    shapes: list[tuple[int, int]], timeout: int, epochs: list[list[Row]]
) -> None:
    windows = [CountWindow(*shape, timeout) for shape in shapes]
    naive, runner = Naive(windows[0]), Runner(CountWindows(windows[0], 1, PARTS, RESULTS))
    greatest = 0
    for number, rows in enumerate([*epochs, []]):
        naive.window = windows[number // 3 % len(windows)]
        runner.windows = CountWindows(naive.window, 1, PARTS, RESULTS)
        assert Counter(runner.epoch(rows, greatest)) == naive.epoch(rows, greatest)
        greatest = max([at for _, _, at in rows if at is not None] + [greatest])
    assert Counter(runner.epoch([], END_OF_TIME)) == naive.epoch([], END_OF_TIME)


def test_without_event_time_the_clock_counts_and_the_end_of_the_input() -> None:
    rows: dict[str, Row] = {key: (key, None, None) for key in "ab"}
    windows = CountWindows(count_window(3, timeout=0.00001), 1, (COUNTED,), (CountResult("count", 0),))
    runner = Runner(windows, timed=False)
    assert runner.epoch([rows["a"], rows["b"]], None, now=0) == []
    assert runner.epoch([rows["b"], rows["b"]], None, now=5) == [("b", 0, 3)]
    assert runner.epoch([], None, now=9) == []
    assert runner.epoch([rows["b"]], None, now=10) == [("a", 0, 1)]
    assert runner.epoch([], END_OF_TIME, now=11) == [("b", 1, 1)]


@pytest.mark.parametrize(("size", "step"), [(0, None), (3, 4), (3, 0)])
def test_windows_that_would_hold_nothing_or_leave_rows_out_are_refused(size: int, step: int | None) -> None:
    with pytest.raises(PlanError, match="a step between 1 and it"):
        count_window(size, step)


def test_a_plan_sees_that_other_aggregates_are_kept() -> None:
    least, greatest = (
        shipped(CountWindows(count_window(3), 1, (CountPart(how, "n", "bigint"),), (CountResult(how, 0),)))
        for how in ("min", "max")
    )
    assert least.digest != greatest.digest


def test_values_that_are_not_numbers_count_as_they_do_in_spark() -> None:
    inf, nan = float("inf"), float("nan")
    kept = (CountPart("sum", "n", "double"), THERE, CountPart("min", "n", "double"), CountPart("max", "n", "double"))
    results = (CountResult("sum", 0, 1), CountResult("mean", 0, 1), CountResult("min", 2), CountResult("max", 3))
    runner = Runner(CountWindows(count_window(3), 1, kept, results), pa.float64())
    assert runner.epoch([("a", inf, None), ("a", 1.0, None)], None) == []
    assert runner.epoch([("a", None, None)], None) == [("a", 0, inf, inf, 1.0, inf)]
    ((_, _, *found),) = runner.epoch([("a", value, None) for value in (nan, 2.0, 1.0)], None)
    assert [math.isnan(value) for value in found] == [True, True, False, True]
    assert found[2] == 1.0
    assert runner.epoch([("a", None, None)] * 3, None) == [("a", 2, None, None, None, None)]


@given(
    values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    shape=st.sampled_from([(7, 7), (9, 4), (5, 1)]),
)
@example(values=[0.0] * 8 + [0.1, 0.2, 0.3, 0.0, 0.0], cuts=[9], shape=(9, 4))
def test_a_sum_does_not_depend_on_where_epochs_end(
    values: list[float], cuts: list[int], shape: tuple[int, int]
) -> None:
    windows = CountWindows(
        CountWindow(*shape), 1, (CountPart("sum", "n", "double"), THERE), (CountResult("sum", 0, 1),)
    )
    rows: list[Row] = [("a", value, None) for value in values]
    at_once, in_parts = Runner(windows, pa.float64()), Runner(windows, pa.float64())
    edges = [0, *sorted(cuts), len(rows)]
    found = [row for a, b in pairwise(edges) for row in in_parts.epoch(rows[a:b], None)]
    assert found == at_once.epoch(rows, None)


@pytest.mark.parametrize(
    ("type", "values", "least", "greatest"),
    [
        (pa.string(), ["b", None, "ä"], "b", "ä"),
        (pa.bool_(), [True, None, False], False, True),
        (pa.date32(), [date(2026, 1, 2), None, date(1969, 1, 1)], date(1969, 1, 1), date(2026, 1, 2)),
        (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.00"), None], Decimal("-2.00"), Decimal("1.50")),
        (pa.string(), [None, None, None], None, None),
    ],
)
def test_whatever_has_an_order_has_a_least_and_a_greatest(
    type: pa.DataType, values: list[Any], least: Any, greatest: Any
) -> None:
    functions = ("min", "max", "first", "last")
    kept = tuple(CountPart(how, "n", "") for how in functions)
    results = tuple(CountResult(how, i) for i, how in enumerate(functions))
    for epochs in ([values], [values[:1], values[1:]], [[value] for value in values]):
        runner = Runner(CountWindows(count_window(3), 1, kept, results), type)
        found = [row for some in epochs for row in runner.epoch([("a", value, None) for value in some], None)]
        assert found == [("a", 0, least, greatest, values[0], values[-1])]


def test_a_sum_that_does_not_fit_is_refused() -> None:
    runner = Runner(CountWindows(count_window(2), 1, (SUM, THERE), (CountResult("sum", 0, 1),)))
    runner.epoch([("a", 1 << 62, None)], None)
    with pytest.raises(StateError, match="the 'sum n' of a key does not fit into 64 bits"):
        runner.epoch([("a", 1 << 62, None)], None)


def test_decimals_are_added_exactly() -> None:
    kept, type = (CountPart("sum", "n", "decimal(38,10)"), THERE), pa.decimal128(38, 10)
    windows = CountWindows(CountWindow(3, 1), 1, kept, (CountResult("sum", 0, 1), CountResult("mean", 0, 1)))
    runner, great = Runner(windows, type), Decimal("1234567890123456789012345678.0123456789")
    assert runner.epoch([("a", great, None), ("a", None, None)], None) == []
    assert runner.epoch([("a", great, None), ("a", None, None), ("a", None, None)], None) == [
        ("a", 0, Decimal("2469135780246913578024691356.0246913578"), float(great)),
        ("a", 1, great, float(great)),
        ("a", 2, great, float(great)),
    ]
    assert runner.epoch([("a", None, None)], None) == [("a", 3, None, None)]
    with pytest.raises(StateError, match="the 'sum n' of a key does not fit into decimal128"):
        runner.epoch([("a", Decimal("9999999999999999999999999999.0"), None)] * 2, None)


def test_a_mean_has_no_bound() -> None:
    runner = Runner(
        CountWindows(count_window(2), 1, (CountPart("total", "n", "double"), THERE), (CountResult("mean", 0, 1),))
    )
    assert runner.epoch([("a", 1 << 62, None), ("a", 1 << 62, None)], None) == [("a", 0, float(1 << 62))]


def test_what_is_kept_says_what_it_is_of() -> None:
    least, both = CountPart("min", "n", "bigint"), (CountPart("max", "n", "bigint"), CountPart("max", "m", "bigint"))
    kept = [state_fields(CountWindows(count_window(3), 1, (COUNTED, part), ())) for part in (SUM, least, *both)]
    assert len(set(kept)) == 4


def test_a_timeout_that_is_taken_away_leaves_no_timer() -> None:
    runner = Runner(CountWindows(count_window(2, timeout=0.00001), 1, PARTS, RESULTS))
    assert runner.epoch([("a", 1, 5)], None) == []
    assert runner.deadlines == (15, None)
    runner.windows = CountWindows(count_window(2), 1, PARTS, RESULTS)
    assert len(runner.epoch([("a", 1, 6)], None)) == 1
    assert runner.deadlines == (None, None)


def test_only_punctuations_end_windows() -> None:
    runner = Runner(CountWindows(count_window(2), 1, (COUNTED,), (CountResult("count", 0),)))
    assert runner.epoch([("a", 5, None)], None, ends=5) == [], "a column of the user's has that name"


def test_state_of_an_older_form_is_migrated_and_new_keys_have_none() -> None:
    def migrate(old: dict[str, Any]) -> dict[str, Any]:
        return {"following": old["windows"]}

    windows = CountWindows(count_window(2), 1, (COUNTED,), (CountResult("count", 0),))
    older = Stage(
        (StateField(name="windows", kind="value", type="bigint"),),
        bytes(pa.schema([("windows", pa.int64())]).serialize()), 0, None,
    )  # fmt: skip
    runner = Runner(windows)
    runner.form, runner.older = (1, capture(migrate, what="a migration", shipped=True)), (older,)
    with runner.store.reader() as reader:
        state = GroupState(form_of("c", (older,)), reader, 0)
        state.bind(KeyCodec(pa.schema([("key", pa.string())])).encode([pa.array(["a"])])[0].as_py())
        state.write("windows", 7)
        state.release()
    runner.store.apply([Edits(state.changes)], Version("job", 0, "c"))
    rows: list[Row] = [("a", 1, None), ("b", 1, None)]
    assert runner.epoch(rows, None) == []
    assert Counter(runner.epoch(rows, None)) == Counter([("a", 7, 2), ("b", 0, 2)])
