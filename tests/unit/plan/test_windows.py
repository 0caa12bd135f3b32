"""Window operators as plain data: kinds of windows are kept apart, and older plans can be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
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
from midstream.plan.windows import (
    AnyWindow,
    Session,
    Window,
    count_window,
    session,
    sliding,
    tumbling,
)
from midstream.plan.wiring import check


def made(window: AnyWindow, **options: object) -> p.Window:
    return builders.key_by("user").window(window).aggregate(id="sums", n=ms.count(), **options)  # type: ignore[arg-type]


def plan_of(*more: p.AnyOperator) -> p.Plan:
    return p.Plan(name="flow", operators=(p.Source(id="rows", schema="user string, ts timestamp"), *more))


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
    assert msgspec.json.decode(text, type=p.AnyOperator).spec == Window(10_000_000, 2_000_000)  # type: ignore[union-attr]
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
        (lambda: made(tumbling(10), m="count"), r"'sums': m= takes such as ms\.count\(\) .*, not 'count'"),
        (lambda: made(tumbling(10), m=ms.count), r"'sums': m= takes such as ms\.count\(\)"),
        (lambda: made(tumbling(10), lateness="-1 s"), "a length of time cannot be negative: '-1 s'"),
        (lambda: count_window(2.5), "a whole number of rows, and a step between 1 and it, not 2.5"),
        (lambda: count_window("3"), "a whole number of rows"),
        (
            lambda: builders.window(count_window(3)).aggregate(n=ms.count()),  # type: ignore[arg-type]
            "a window for ms.insert or ms.replace needs .* with ms.built and ms.branch",
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
    old = (Regime(Window(20, 5), until=8), Regime(Window(8, 4), since=8))
    state = OperatorState(regimes=old, latest=5, watermark=22)
    *older, newest = regimes_of(Resolved(plan_of(spread), {}, {}, {}), "best", state)
    assert older == [old[0], Regime(Window(8, 4), since=8, until=28)]
    assert newest == Regime(Window(7, 7), since=28)
