"""Watermarks: the event time that rows count with, and what an operator may rely on having seen."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from midstream.checkpoint.records import Commit, Deferred, OperatorState
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.watermarks import ahead, observed, regimes_of, varying, watermark_of
from midstream.plan import plan as p
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import END_OF_TIME, TimeWindow
from tests.support.spark_sql import column

MOMENT = pa.timestamp("us")
FIRST_TIME = -62_135_596_800_000_000


def watermark(id: str = "w", **given: int | str) -> p.Watermark:
    return p.Watermark(id=id, inputs=("s",), **{"column": "ts", "delay": 3, **given})  # type: ignore[arg-type]


def keyed(*above: str) -> Keyed:
    return Keyed(StructType(), StructType(), None, above, pa.schema([]))


def commit(times: Mapping[str, int], seen: Mapping[str, int] | None = None, **operators: OperatorState) -> Commit:
    return Commit(
        epoch=1, id="c", parent="", version=1, clock=0, offsets=(), event_times=dict(times), seen=dict(seen or {}),
        operators=operators,
    )  # fmt: skip


def resolved(*watermarks: p.Watermark, **operators: p.Operator) -> Resolved:
    """An operator `sums` below some watermarks, in this order."""
    sums = p.Aggregate(id="sums", inputs=tuple(w.id for w in watermarks), keys=(), aggregates=())
    source = p.Source(id="s", schema="")
    plan = p.Plan(name="flow", operators=(source, *watermarks, *operators.values(), sums))  # type: ignore[arg-type]
    return Resolved(plan, {}, {}, {"sums": keyed(*(w.id for w in watermarks))})


TIMES = st.lists(st.one_of(st.none(), st.integers(-50, 50), st.sampled_from([FIRST_TIME, END_OF_TIME - 1])), max_size=8)


@given(TIMES, st.sampled_from([0, 10]), st.booleans(), st.integers(-9, 9), st.data())
def test_a_row_counts_with_its_time_unless_it_is_too_far_ahead_and_a_punctuation_with_the_delay(
    times: list[int | None], bound: int, punctuated: bool, clock: int, data: st.DataObject
):
    ends = [data.draw(st.sampled_from([True, False, None])) for _ in times]
    expression = observed(watermark(ahead=bound, punctuation="`ends`" if punctuated else ""), clock)
    found = column(expression, ts=pa.array(times, pa.int64()).cast(MOMENT), ends=pa.array(ends, pa.bool_()))
    expected: list[int | None] = []
    for time, ends_all in zip(times, ends, strict=True):
        if time is None or (bound and time > clock + bound):
            expected.append(None)
        else:
            expected.append(time + 3 if punctuated and ends_all else time)
    assert found == expected


def test_a_time_that_no_calendar_has_does_not_count():
    times = pa.array([FIRST_TIME - 1, FIRST_TIME, END_OF_TIME - 1, END_OF_TIME], pa.int64()).cast(MOMENT)
    assert column(observed(watermark(), 0), ts=times) == [None, FIRST_TIME, END_OF_TIME - 1, None]


@given(st.integers(1 - 2**63, 2**63 - 1), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=5))
def test_a_number_that_varies_is_the_same_for_all_rows_that_have_one(value: int, rows: list[int | None]):
    found = column(varying(value, "`n`"), n=pa.array(rows, pa.int64()))
    assert found == [None if row is None else value for row in rows]


def test_rows_are_bounded_by_the_strictest_watermark_that_has_a_bound():
    assert ahead(resolved(watermark("a", ahead=20), watermark("b"), watermark("c", ahead=7)), "sums", 100) == 107
    assert ahead(resolved(watermark("a"), watermark("b")), "sums", 100) is None
    assert ahead(resolved(), "sums", 100) is None


TWO = (watermark("a", delay=3), watermark("b", delay=10))


@pytest.mark.parametrize(
    ("times", "expected"),
    [({}, None), ({"a": 50}, None), ({"b": 50}, None), ({"a": 50, "b": 70}, 47), ({"a": 70, "b": 50}, 40)],
)
def test_the_watermark_is_the_least_of_those_above_less_their_delay_and_none_while_one_has_no_rows(
    times: dict[str, int], expected: int | None
):
    assert watermark_of(resolved(*TWO), "sums", commit(times), clock=0) == expected


def test_there_is_none_before_a_commit_and_where_nothing_declares_one():
    assert watermark_of(resolved(*TWO), "sums", None, clock=0) is None
    assert watermark_of(resolved(), "sums", commit({"a": 5}), clock=0) is None


IDLE = (watermark("a", delay=0, idle=10), watermark("b", delay=0))


@pytest.mark.parametrize(
    ("clock", "expected"), [(110, 5), (111, 90)], ids=["just not idle", "idle for longer than it may be"]
)
def test_what_is_idle_holds_nobody_back(clock: int, expected: int):
    at = commit({"a": 5, "b": 90}, seen={"a": 100, "b": 100})
    assert watermark_of(resolved(*IDLE), "sums", at, clock) == expected


def test_what_never_had_rows_is_idle_too_and_where_all_are_idle_those_with_rows_count():
    assert watermark_of(resolved(*IDLE), "sums", commit({"b": 90}, seen={"a": 0, "b": 0}), clock=11) == 90
    both = (watermark("a", delay=0, idle=10), watermark("b", delay=0, idle=10))
    assert watermark_of(resolved(*both), "sums", commit({"a": 5}, seen={"a": 0, "b": 0}), clock=11) == 5
    assert watermark_of(resolved(*both), "sums", commit({}, seen={"a": 0, "b": 0}), clock=11) is None


def waiting(hold: dict[str, int]) -> OperatorState:
    aside = Deferred(epoch=0, clock=0, seed="", watermark=None, before=None, groups=(0,), path="", form="")
    return OperatorState(backlog=(aside,), hold=hold)


def test_an_operator_waits_for_rows_that_one_above_it_has_put_aside_and_not_for_its_own():
    source, w = p.Source(id="s", schema=""), watermark("w", delay=0)
    above = p.Aggregate(id="above", inputs=("w",), keys=(), aggregates=())
    sums = p.Aggregate(id="sums", inputs=("above",), keys=(), aggregates=())
    plan = p.Plan(name="flow", operators=(source, w, above, sums))
    known = Resolved(plan, {}, {}, {"above": keyed("w"), "sums": keyed("w")})
    at = commit({"w": 90}, above=waiting({"w": 20}), sums=waiting({"w": 5}))
    assert watermark_of(known, "sums", at, 0) == 20
    assert watermark_of(known, "above", at, 0) == 90
    assert watermark_of(known, "sums", commit({"w": 90}, above=waiting({})), 0) is None


def test_windows_have_the_shape_of_the_plan_until_a_commit_says_otherwise():
    window = p.Window(id="sums", inputs=("s",), keys=(), aggregates=(), size=10, slide=10)
    known = Resolved(p.Plan(name="flow", operators=(p.Source(id="s", schema=""), window)), {}, {}, {})
    assert regimes_of(known, "sums", OperatorState()) == (Regime(TimeWindow(10, 10)),)
    old = OperatorState(regimes=(Regime(TimeWindow(4, 4)),), latest=21)
    assert regimes_of(known, "sums", old) == (Regime(TimeWindow(4, 4), until=30), Regime(TimeWindow(10, 10), 30))


def test_of_rows_that_are_spread_over_windows_the_watermark_counts_too():
    source = p.Source(id="s", schema="")
    spread = p.Spread(id="spread", inputs=("s",), of="best", size=10, slide=10)
    sums = p.Aggregate(id="best", inputs=("spread",), keys=(), aggregates=())
    known = Resolved(p.Plan(name="flow", operators=(source, spread, sums)), {}, {}, {})
    old = OperatorState(regimes=(Regime(TimeWindow(4, 4)),), latest=21, watermark=47)
    assert regimes_of(known, "best", old) == (Regime(TimeWindow(4, 4), until=50), Regime(TimeWindow(10, 10), 50))


def test_what_has_no_windows_of_a_fixed_size_has_no_regimes():
    session = p.Window(id="sums", inputs=("s",), keys=(), aggregates=(), size=0, slide=0, gap=5)
    plain = p.Aggregate(id="plain", inputs=("s",), keys=(), aggregates=())
    known = Resolved(p.Plan(name="flow", operators=(p.Source(id="s", schema=""), session, plain)), {}, {}, {})
    assert regimes_of(known, "sums", OperatorState()) == regimes_of(known, "plain", OperatorState()) == ()
