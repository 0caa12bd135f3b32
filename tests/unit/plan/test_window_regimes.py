"""Regimes of windows: where a change comes into force, and that panes fit every window over them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.checkpoint.records import Commit, Deferred, Intent, OperatorState, Report
from midstream.epoch.attempt import Outcome
from midstream.epoch.beginning import Beginning
from midstream.epoch.commit import next_record
from midstream.flow import builders
from midstream.operators.aggregates import declare as ms
from midstream.operators.resolved import Keyed, Resolved
from midstream.plan import plan as p
from midstream.plan.window_regimes import FOR_EVER, Regime, succeeded, without_past
from midstream.plan.windows import LONG_AGO, TimeWindow
from tests.support.windowing import pane_of

TEN, FIFTEEN, SIX = TimeWindow(10, 10), TimeWindow(15, 15), TimeWindow(6, 2)
CHANGED = (Regime(TEN, until=30), Regime(FIFTEEN, 30))


@pytest.mark.parametrize(
    ("regimes", "window", "latest", "expected"),
    [
        ((), TEN, None, (Regime(TEN),)),
        ((Regime(TEN),), TEN, 12, (Regime(TEN),)),
        ((Regime(TEN),), FIFTEEN, None, (Regime(FIFTEEN),)),
        ((Regime(TEN),), FIFTEEN, 12, CHANGED),
        ((Regime(TEN),), FIFTEEN, 20, CHANGED),
        ((Regime(TEN),), FIFTEEN, 30, (Regime(TEN, until=45), Regime(FIFTEEN, 45))),
        ((Regime(TEN),), FIFTEEN, -12, (Regime(TEN, until=0), Regime(FIFTEEN, 0))),
        (CHANGED, TEN, 29, (Regime(TEN),)),
        (CHANGED, SIX, 29, (Regime(TEN, until=30), Regime(SIX, 30))),
        (CHANGED, TEN, 31, (Regime(TEN, until=30), Regime(FIFTEEN, 30, 50), Regime(TEN, 50))),
        (CHANGED[1:], SIX, 12, (Regime(SIX, 30),)),
    ],
    ids=[
        "a new operator",
        "nothing changes",
        "no rows yet",
        "behind the next start of an old window",
        "a row at a start",
        "not within an old window",
        "before 1970",
        "back before it was in force",
        "changed again before it was in force",
        "changed again after that",
        "what is forgotten is not begun again",
    ],
)
def test_a_change_comes_into_force_behind_the_rows_that_were_taken(
    regimes: tuple[Regime, ...], window: TimeWindow, latest: int | None, expected: tuple[Regime, ...]
) -> None:
    assert succeeded(regimes, window, latest) == expected


@given(
    shapes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda s: s[0] >= s[1]), min_size=1),
    data=st.data(),
)
def test_a_pane_starts_in_the_windows_that_hold_its_rows_and_in_no_others(
    shapes: list[tuple[int, int]], data: st.DataObject
) -> None:
    regimes: tuple[Regime, ...] = ()
    latest, panes = -40, dict[int, int]()  # of rows that were taken: time -> start of the pane
    for size, slide in shapes:
        regimes = succeeded(regimes, TimeWindow(size, slide), max(panes.values(), default=None))
        for time in data.draw(st.lists(st.integers(latest - 20, latest + 30), max_size=4), label="rows"):
            pane = pane_of(regimes, time, None)
            assert pane is not None
            panes[time] = pane
        latest = max([latest, *panes])
    for regime in regimes:
        size, slide = regime.window.size, regime.window.slide
        for start in range(-200 // slide * slide, latest + 50, slide):
            if regime.since <= start < regime.until:
                held = {time for time in panes if start <= time < start + size}
                assert held == {time for time, pane in panes.items() if start <= pane < start + size}
    for time in panes:
        assert any(regime.since <= time < regime.last_end(time) for regime in regimes), "each row is in a window"


def test_a_regime_is_past_when_its_last_window_has_ended() -> None:
    assert without_past(CHANGED, 29) == CHANGED
    assert without_past(CHANGED, 30) == CHANGED[1:]
    assert without_past(CHANGED, 10**15) == CHANGED[1:]
    assert CHANGED[0].next_end(25, after=29) == 30
    assert CHANGED[0].next_end(25, after=30) == CHANGED[0].starts_after(30) == FOR_EVER


def test_regimes_are_read_from_a_record_as_they_were_written() -> None:
    state = OperatorState(latest=31, regimes=CHANGED)
    assert msgspec.json.decode(msgspec.json.encode(state), type=OperatorState) == state
    assert state.regimes[0].since == LONG_AGO


def test_a_record_has_the_regimes_of_its_plan_and_none_that_is_past_for_all_groups() -> None:
    waiting = Deferred(epoch=5, clock=0, seed="", watermark=None, groups=(3,), path="rows")

    def after(
        state: OperatorState, window: TimeWindow, watermark: int, latest: int | None, deferred: Deferred | None = None
    ) -> OperatorState:
        made = builders.window(window).aggregate(id="sums", n=ms.count())
        plan = p.Plan(name="flow", operators=(p.Source(id="rows", schema="ts timestamp"), made))
        keyed = Keyed(None, None, "ts", (), None)  # type: ignore[arg-type]
        last = Commit(epoch=4, id="a", parent="", version=1, clock=0, offsets=(), operators={"sums": state})
        reports = [
            Report(operator="sums", slot=slot, watermark=watermark, latest=seen, deferred=wait)
            for slot, seen, wait in ((0, latest, deferred), (1, None, None))
        ]
        outcome = Outcome({"sums": [("path", report) for report in reports]}, [], {}, {})
        intent = Intent(epoch=5, version=2, clock=0, seed="")
        resolved = Resolved(plan, {}, {}, {"sums": keyed})
        return next_record(Beginning(last, intent, resolved, 4), (), outcome).operators["sums"]

    first = after(OperatorState(), TEN, 0, 12)
    assert (first.latest, first.regimes) == (12, (Regime(TEN),))
    changed = after(first, FIFTEEN, 5, 40)
    assert (changed.latest, changed.regimes) == (40, CHANGED), "rows of the epoch itself do not count"
    assert after(changed, FIFTEEN, 29, None).regimes == CHANGED
    assert after(changed, FIFTEEN, 30, None).regimes == CHANGED[1:]
    assert after(changed, FIFTEEN, 30, None, waiting).regimes == CHANGED, "a group has still to go through them"
