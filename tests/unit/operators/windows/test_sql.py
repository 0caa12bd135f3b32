"""The SQL of windows against their definition: every window that could hold a row is looked at, one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.shuffle import KeyedRun
from midstream.operators.task import Epoch
from midstream.operators.windows.sql import WindowSql
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import END_OF_TIME, TimeWindow
from midstream.state.history import Head
from tests.support.spark_sql import column, run

CLOCK, AHEAD = 10, 15
FIRST_TIME = -62_135_596_800_000_000
SOURCE = p.Source(id="s", schema="")
MOMENT = pa.timestamp("us")
SHAPES = st.sampled_from([(10, 10), (10, 5), (10, 4), (7, 3), (1, 1)])
TIMES = st.lists(st.one_of(st.none(), st.integers(-40, 60)), max_size=10)
MARKS = st.one_of(st.none(), st.integers(-40, 60))


def marked(bound: int = 0) -> p.Watermark:
    return p.Watermark(id="w", inputs=("s",), column="ts", delay=0, ahead=bound)


def sql(windows: p.Window | p.Spread, bound: int = 0, regimes: tuple[Regime, ...] = (), **epoch: Any) -> WindowSql:
    """The windows of an operator below a watermark, in an epoch."""
    others = () if windows.id == windows.of else (p.Aggregate(id=windows.of, inputs=("x",), keys=(), aggregates=()),)
    late = p.Late(id="late", inputs=("w",), of=windows.of)
    plan = p.Plan(name="flow", operators=(SOURCE, marked(bound), windows, *others, late))
    keyed = Keyed(StructType(), StructType(), "ts", ("w",), pa.schema([]))
    now = Epoch(1, CLOCK, "", **{"watermark": None, **epoch})
    routed = KeyedRun(
        Head("job", "x", "", "", 0, (None,)), now, Routing.even(1, 1), combine=False, markers=False, regimes=regimes
    )
    return WindowSql(Resolved(plan, {}, {"w": "ts"}, {windows.of: keyed}), {windows.of: routed}, CLOCK)


def window(size: int, slide: int, lateness: int = 0, gap: int = 0) -> p.Window:
    return p.Window(
        id="sums", inputs=("w",), keys=(), aggregates=(), size=size, slide=slide, lateness=lateness, gap=gap
    )


def spread(size: int, slide: int) -> p.Spread:
    return p.Spread(id="spread", inputs=("w",), of="best", size=size, slide=slide)


def times(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(MOMENT)


def starts(time: int, size: int, slide: int, passed: float = -math.inf) -> list[int]:
    """Of all windows that hold a moment and end after another one, by their definition."""
    return [s for s in range(time - size + 1, time + 1) if s % slide == 0 and s + size > passed]


@given(SHAPES, TIMES, MARKS, st.sampled_from([0, 8]), st.sampled_from([0, AHEAD]))
def test_a_row_is_in_the_pane_of_its_time_if_a_window_still_takes_it_and_else_in_none(
    shape: tuple[int, int], given: list[int | None], mark: int | None, lateness: int, bound: int
):
    size, slide = shape
    operator = window(size, slide, lateness)
    expected: list[int | None] = []
    for time in given:
        passed = -math.inf if mark is None else mark - lateness
        if time is None or not starts(time, size, slide, passed) or (bound and time > CLOCK + bound):
            expected.append(None)
        else:
            expected.append(time - time % math.gcd(size, slide))
    assert column(sql(operator, bound, watermark=mark).pane(operator), ts=times(given)) == expected


@given(TIMES, MARKS, st.sampled_from([0, AHEAD]))
def test_a_row_is_its_own_start_of_a_session_whether_late_or_not(given: list[int | None], mark: int | None, bound: int):
    operator = window(0, 0, gap=5)
    expected = [None if time is None or (bound and time > CLOCK + bound) else time for time in given]
    assert column(sql(operator, bound, watermark=mark).pane(operator), ts=times(given)) == expected


def spread_over(operator: p.Spread, made: WindowSql, given: list[int | None]) -> Counter[Any]:
    begin, *bounds = made.spread(operator)
    taken = f"select *, {begin} from given where {made.is_taken(operator)}"
    found = run(f"select * except (_start), {', '.join(bounds)} from ({taken})", given=pa.table({"ts": times(given)}))
    return Counter(tuple(micros(row[name]) for name in ("ts", "window_start", "window_end")) for row in found)


def micros(moment: Any) -> int:
    return int(pa.scalar(moment, MOMENT).cast(pa.int64()).as_py())


@given(SHAPES, TIMES, MARKS, st.sampled_from([0, AHEAD]))
def test_a_row_is_spread_over_the_windows_that_are_open_and_is_late_if_there_are_none(
    shape: tuple[int, int], given: list[int | None], mark: int | None, bound: int
):
    size, slide = shape
    operator, passed = spread(size, slide), -math.inf if mark is None else mark
    made = sql(operator, bound, watermark=mark)
    near = [time for time in given if time is not None and not (bound and time > CLOCK + bound)]
    windows = [(time, s, s + size) for time in near for s in starts(time, size, slide, passed)]
    assert spread_over(operator, made, given) == Counter(windows)
    late = sum(1 for time in given if time not in {time for time, _, _ in windows})
    assert column(made.count_late(operator), ts=times(given)) == [late]


@given(TIMES, MARKS)
def test_windows_that_were_open_when_the_shape_changed_keep_theirs(given: list[int | None], mark: int | None):
    operator, passed = spread(10, 5), -math.inf if mark is None else mark
    made = sql(operator, regimes=(Regime(TimeWindow(6, 3), until=20), Regime(TimeWindow(10, 5), 20)), watermark=mark)
    expected = Counter(
        (time, start, start + size)
        for time in given
        if time is not None
        for size, slide, holds in ((6, 3, lambda s: s < 20), (10, 5, lambda s: s >= 20))
        for start in starts(time, size, slide, passed)
        if holds(start)
    )
    assert spread_over(operator, made, given) == expected


@pytest.mark.parametrize("kind", ["window", "spread"])
def test_late_rows_say_why(kind: str):
    operator = window(10, 10) if kind == "window" else spread(10, 10)
    made = sql(operator, AHEAD, watermark=20)
    moments = [19, 20, 25, 26, None, FIRST_TIME - 1, END_OF_TIME]
    query = made.late(p.Late(id="late", inputs=("w",), of=operator.of), "given")
    rows = pa.table({"n": list(range(len(moments))), "ts": times(moments)})
    found = run(f"select n, late_reason from ({query})", given=rows)
    assert [(row["n"], row["late_reason"]) for row in found] == [
        (0, "late"),
        (3, "too far ahead"),
        (4, "no event time"),
        (5, "outside the years 1 to 9999"),
        (6, "outside the years 1 to 9999"),
    ]


def test_late_rows_of_sessions_are_all_that_their_task_gives():
    made = sql(window(0, 0, gap=5), watermark=20)
    found = run(
        made.late(p.Late(id="late", inputs=("w",), of="sums"), "given"), given=pa.table({"ts": times([3, None])})
    )
    assert [row["late_reason"] for row in found] == ["late", "no event time"]


def test_rows_that_come_with_the_end_of_the_input_are_taken_up_to_the_watermark_before():
    operator = window(10, 10)
    end = sql(operator, watermark=END_OF_TIME, before=20)
    assert column(end.pane(operator), ts=times([19, 20])) == [None, 20]
    assert column(sql(operator, watermark=END_OF_TIME).pane(operator), ts=times([-5])) == [-10]


def test_rows_that_are_windows_themselves_come_before_the_watermark_that_closes_them():
    inner = p.Window(id="inner", inputs=("w",), keys=(), aggregates=(), size=5, slide=5)
    outer = p.Window(id="outer", inputs=("inner",), keys=(), aggregates=(), size=10, slide=10)
    plan = p.Plan(name="flow", operators=(SOURCE, marked(), inner, outer))
    keyed = Keyed(StructType(), StructType(), "ts", ("w",), pa.schema([]))
    now = Epoch(1, CLOCK, "", watermark=30, before=20)
    routed = KeyedRun(Head("job", "x", "", "", 0, (None,)), now, Routing.even(1, 1), combine=False, markers=False)
    known = Resolved(plan, {}, {"w": "ts", "inner": "ts"}, {"inner": keyed, "outer": keyed})
    made = WindowSql(known, {"inner": routed, "outer": routed}, CLOCK)
    assert (made.is_of_windows(inner), made.is_of_windows(outer)) == (False, True)
    assert column(made.pane(inner), ts=times([19, 20, 29, 30])) == [None, None, None, 30]
    assert column(made.pane(outer), ts=times([19, 20, 29, 30])) == [None, 20, 20, 30]


def test_windows_are_of_the_shape_of_the_plan_unless_some_are_older():
    operator, older = window(10, 10), (Regime(TimeWindow(4, 4), until=20), Regime(TimeWindow(10, 10), 20))
    assert sql(operator).regimes(operator) == (Regime(TimeWindow(10, 10)),)
    assert sql(operator, regimes=older).regimes(operator) == older
