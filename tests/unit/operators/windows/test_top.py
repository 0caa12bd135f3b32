"""The leading rows of a window against all its rows, sorted; in Spark's order: null last, NaN first."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.functions.declare import state_fields
from midstream.operators.windows.top import Leading, Top
from midstream.plan.code import capture
from midstream.state.values import moment_of
from tests.support.function_runner import Runner

ROW = pa.struct([("user", pa.string()), ("price", pa.float64())])
DDL = "struct<user: string, price: double>"
Row = tuple[str | None, float | None]


class Key(NamedTuple):
    """A window: what the key columns of a ranking are."""

    window_start: datetime
    window_end: datetime


WINDOW = Key(moment_of(0), moment_of(10))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]), st.sampled_from([None, math.nan, -1.0, 0.0, 2.5, math.inf, -math.inf])
    ),
    max_size=12,
)


def top(n: int, *, ties: bool, ends: bool = False) -> Runner:
    return Runner(Top(n, 1, ties, DDL, ends=ends), {"best": ROW})


def epoch(runner: Runner, rows: list[Any], watermark: int | None = None, key: Key = WINDOW) -> list[Any]:
    return runner.epoch([(key, row) for row in rows], watermark)  # type: ignore[misc]


def place(price: float | None) -> tuple[int, float]:
    """Where a price stands: less is better."""
    if price is None:
        return 2, 0.0
    return (0, 0.0) if math.isnan(price) else (1, -price)


def comparable(rows: list[Any]) -> list[str]:
    return [repr(tuple(row)) for row in rows]


def leading(rows: list[Row], n: int, *, ties: bool) -> list[str]:
    """Sort everything, and cut; without ties, of equal rows the lesser ones come first, null before all else."""
    ranked = sorted(rows, key=lambda row: (place(row[1]), row[0] is not None, row[0] or ""))
    if not ties:
        return sorted(comparable(ranked[:n]))
    return sorted(comparable([row for row in rows if sum(place(o[1]) < place(row[1]) for o in rows) < n]))


@given(ROWS, st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 12), max_size=4))
def test_what_leads_does_not_depend_on_where_epochs_end(rows: list[Row], n: int, ties: bool, cuts: list[int]):
    runner = top(n, ties=ties)
    for begin, end in pairwise([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]):
        assert epoch(runner, rows[begin:end], watermark=9) == [], "the window is not over"
    found = epoch(runner, [], watermark=10)
    assert sorted(comparable(found)) == leading(rows, n, ties=ties)
    assert runner.entries() == 0


def test_a_window_is_over_when_the_watermark_has_reached_its_end_and_no_other_is():
    runner, later = top(1, ties=False), Key(moment_of(10), moment_of(20))
    epoch(runner, [("a", 1.0), ("b", 2.0)])
    epoch(runner, [("c", 0.5)], key=later)
    assert epoch(runner, [], watermark=19) == [("b", 2.0)]
    assert epoch(runner, [], watermark=20) == [("c", 0.5)]
    assert runner.entries() == 0


def test_a_row_may_end_its_window_and_what_comes_then_begins_it_anew():
    runner = top(2, ties=True, ends=True)
    assert epoch(runner, [("a", 1.0, False), ("b", 2.0, False)]) == []
    assert epoch(runner, [("c", 3.0, True), ("d", 0.0, True)]) == [("c", 3.0), ("b", 2.0)]
    assert runner.entries() == 0, "its timer is gone too"
    assert epoch(runner, [("e", 0.5, False)]) == []
    assert epoch(runner, [], watermark=10) == [("e", 0.5)]


def test_a_timer_is_kept_for_the_end_of_the_window():
    runner = top(3, ties=True)
    epoch(runner, [("a", 1.0)])
    assert runner.entries() == 3, "the row, how many there are, and the timer"


@pytest.mark.parametrize("change", [{"n": 4}, {"by": "size"}, {"keys": ("window_end",)}, {"punctuation": "done"}])
def test_a_plan_sees_that_other_rows_lead(change: dict[str, Any]):
    given: dict[str, Any] = {"n": 3, "by": "price", "keys": ("window_start", "window_end"), "punctuation": ""}
    one, same, other = (
        capture(Leading(**some), what="it", shipped=True).digest for some in (given, given, given | change)
    )
    assert one == same != other


def test_what_is_kept_is_a_list_of_rows_and_a_window_must_not_come_twice():
    function = Top(3, 1, False, DDL, ends=False)
    assert [(field.name, field.kind, field.type) for field in state_fields(function)] == [("best", "list", DDL)]
    assert not function.takes_revised
    assert datetime.fromtimestamp(0, timezone.utc) == WINDOW.window_start
