"""Windows: where they begin and end, and their operators as plain data, kinds apart and older plans readable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midstream.checkpoint.records import OperatorState
from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.aggregates import declare as ms
from midstream.operators.resolved import Resolved
from midstream.operators.watermarks import regimes_of
from midstream.plan import plan as p
from midstream.plan.compatibility import check_state_fits
from midstream.plan.window_regimes import Regime
from midstream.plan.windows import AnyWindow, CountWindow, Session, TimeWindow, count_window, session, sliding, tumbling
from midstream.plan.wiring import check


def made(window: AnyWindow, **options: object) -> p.Window:
    return builders.key_by("user").window(window).aggregate(id="sums", n=ms.count(), **options)  # type: ignore[arg-type]


def plan_of(*more: p.AnyOperator) -> p.Plan:
    return p.Plan(name="flow", operators=(p.Source(id="rows", schema="user string, ts timestamp"), *more))


# --- where they begin and end ---------------------------------------------------------------------------------------

WINDOWS = st.integers(1, 30).flatmap(lambda size: st.builds(TimeWindow, st.just(size), st.integers(1, size)))
MOMENTS = st.integers(-100, 100)


def ends(window: TimeWindow, first: int, last: int) -> list[int]:
    """The ends of all windows that hold a moment between two, or one of these, found one by one."""
    starts = [start for start in range(-200, 201) if start % window.slide == 0]
    return [start + window.size for start in starts if start <= last and first < start + window.size]


@given(WINDOWS, MOMENTS)
def test_a_moment_is_in_the_windows_from_the_first_to_the_last(window: TimeWindow, time: int) -> None:
    found = ends(window, time, time)
    assert (window.first_end(time), window.last_end(time)) == (found[0], found[-1])
    assert window.is_tumbling == all(len(ends(window, t, t)) == 1 for t in range(30))


@given(WINDOWS, MOMENTS, MOMENTS)
def test_the_next_window_holds_a_moment_or_a_later_one_and_ends_after_another(
    window: TimeWindow, time: int, after: int
) -> None:
    assert window.next_end(time, after) == min(end for end in ends(window, time, 200) if end > after)


@given(WINDOWS)
def test_every_window_begins_and_ends_with_a_pane_and_no_longer_pane_would_do(window: TimeWindow) -> None:
    edges = {edge for end in ends(window, 0, 60) for edge in (end - window.size, end)}
    widths = [width for width in range(1, 31) if all(edge % width == 0 for edge in edges)]
    assert window.pane == max(widths)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: tumbling("10 seconds"), TimeWindow(10_000_000, 10_000_000)),
        (lambda: sliding("1 minute", 0.5), TimeWindow(60_000_000, 500_000)),
        (lambda: sliding(5, 5), tumbling(5)),
        (lambda: session("7 us"), Session(7)),
        (lambda: count_window(3), CountWindow(3, 3, 0)),
        (lambda: count_window(3, 1, "2 s"), CountWindow(3, 1, 2_000_000)),
    ],
)
def test_a_window_is_what_was_written(make: Any, found: Any) -> None:
    assert make() == found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumbling(0), "a size and a slide above zero, not 0 and 0"),
        (lambda: sliding(10, 0), "a size and a slide above zero, not 10 and 0"),
        (lambda: sliding(1, 2), "windows of 1 that start every 2 would leave rows out"),
        (lambda: tumbling(-1), "cannot be negative"),
        (lambda: session(0), "a gap above zero, not 0"),
        (lambda: session("0 minutes"), "a gap above zero, not '0 minutes'"),
        (lambda: count_window(0), "a whole number of rows"),
        (lambda: count_window(3, 0), "a step between 1 and it, not 3 and 0"),
        (lambda: count_window(3, 4), "a step between 1 and it, not 3 and 4"),
        (lambda: count_window(3, timeout=0), "the timeout of a window by count must be longer than 0"),
    ],
)
def test_what_is_no_window_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


# --- their operators ------------------------------------------------------------------------------------------------


def test_windows_do_not_read_the_state_of_sessions_nor_sessions_that_of_windows() -> None:
    with pytest.raises(PlanError, match="the state of operator 'sums' is in sessions"):
        check_state_fits(plan_of(made(session(10))), plan_of(made(tumbling(10))))
    with pytest.raises(PlanError, match="the state of operator 'sums' is in panes"):
        check_state_fits(plan_of(made(tumbling(10))), plan_of(made(session(10))))


def test_state_is_read_by_windows_of_any_size_and_sessions_of_any_gap() -> None:
    for other in (sliding(8, 2), tumbling(7), tumbling("100000.000001 seconds")):
        check_state_fits(plan_of(made(sliding(10, 2))), plan_of(made(other)))
    check_state_fits(plan_of(made(session(10))), plan_of(made(session(11), lateness=5, emit="update")))


def test_a_plan_from_before_there_were_sessions_is_read() -> None:
    text = msgspec.json.encode(made(sliding(10, 2))).replace(b'"gap":0,', b"")
    assert b"gap" not in text
    assert msgspec.json.decode(text, type=p.AnyOperator).spec == TimeWindow(10_000_000, 2_000_000)  # type: ignore[union-attr]
    assert made(session(10)).spec == Session(10_000_000)


def test_late_rows_are_those_of_windows() -> None:
    late = p.Late(id="sums.late", inputs=("rows",), of="sums")
    for window in (tumbling(10), session(10)):
        check(plan_of(msgspec.structs.replace(made(window), inputs=("rows",)), late))
    with pytest.raises(PlanError, match="late rows of 'others', which has no windows of event time"):
        check(plan_of(msgspec.structs.replace(late, of="others")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(tumbling(10), m="count"), r"'sums': m= must be ms\.count\(\).*, not 'count'"),
        (lambda: made(tumbling(10), m=ms.count), r"'sums': m= must be ms\.count\(\)"),
        (lambda: made(tumbling(10), lateness="-1 s"), "a length of time cannot be negative: '-1 s'"),
        (lambda: count_window(2.5), "a whole number of rows, and a step between 1 and it, not 2.5"),
        (lambda: count_window("3"), "a whole number of rows"),
        (
            lambda: builders.window(count_window(3)).aggregate(n=ms.count()),  # type: ignore[arg-type]
            "a window for ms.insert or ms.replace needs .* with ms.built or ms.branch",
        ),
        (lambda: check(plan_of(replace(made(tumbling(10), slots=-1), inputs=("rows",)))), "'sums': slots= .* not -1"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_windows_of_a_function_that_is_gone_are_refused() -> None:
    rows = p.Spread(id="best.windows", inputs=("rows",), of="best", size=10, slide=10)
    with pytest.raises(PlanError, match=r"'best\.windows' has the windows of 'best', which is not in this plan"):
        check(plan_of(rows))


def test_the_new_windows_of_a_top_begin_behind_the_watermark() -> None:
    """A row at 10, when [8, 16) was closed already, is in old windows only: the latest start does not tell of it."""
    spread = p.Spread(id="best.windows", inputs=("rows",), of="best", size=7, slide=7)
    old = (Regime(TimeWindow(20, 5), until=8), Regime(TimeWindow(8, 4), since=8))
    state = OperatorState(regimes=old, latest=5, watermark=22)
    *older, newest = regimes_of(Resolved(plan_of(spread), {}, {}, {}), "best", state)
    assert older == [old[0], Regime(TimeWindow(8, 4), since=8, until=28)]
    assert newest == Regime(TimeWindow(7, 7), since=28)
