"""The values of the test kit: lists and faults by epoch, a clock that stands still, and what a run has left."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import midstream as ms
from midstream import events
from midstream.events import Step
from midstream.testing import Crash, ManualClock, Result, TaskFailure, batches

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MICROS = 1_767_268_800_000_000


def test_every_list_is_an_epoch_and_a_fault_is_of_the_list_behind_it():
    crash, other, failure = Crash(), Crash(Step.PUBLISH, "after"), TaskFailure()
    given = batches("n long", crash, [(1,)], [], failure, other, [(2,), (3,)])
    assert given.lists() == [[(1,)], [], [(2,), (3,)]]
    assert given.faults() == {0: [crash], 2: [failure, other]}
    assert given.schema == "n long"


def test_a_fault_behind_the_last_list_is_of_an_epoch_that_may_never_come():
    assert batches("n long", [(1,)], Crash()).faults() == {1: [Crash()]}
    assert batches("n long").lists() == []
    assert batches("n long").faults() == {}


def test_a_crash_is_before_the_commit_unless_it_is_said():
    assert (Crash().at, Crash().when) == (Step.COMMIT, "before")


@pytest.mark.parametrize(
    "start",
    ["2026-01-01T12:00:00", "2026-01-01T13:00:00+01:00", NOON, NOON.replace(tzinfo=None)],
    ids=["text", "zone", "moment", "naive"],
)
def test_a_clock_begins_when_it_is_told_in_utc(start: str | datetime):
    assert ManualClock(start)() == MICROS


def test_a_clock_stands_still_until_it_is_told_to_go_on():
    clock = ManualClock(NOON)
    assert [clock(), clock()] == [MICROS, MICROS]
    clock.advance("1 second")
    assert (clock(), clock.now) == (MICROS + 1_000_000, NOON + timedelta(seconds=1))


def test_a_clock_may_go_on_with_every_epoch():
    clock = ManualClock(NOON, step="1 minute")
    assert [clock() - MICROS for _ in range(3)] == [0, 60_000_000, 120_000_000]
    assert clock.now == NOON + timedelta(minutes=3), "to be asked is no epoch"
    with pytest.raises(ms.MidstreamError):
        ManualClock(NOON, step="-1 minute")


def progress(epoch: int) -> events.Progress:
    about: dict[str, Any] = {
        "version": 1, "clock": "", "rows": {}, "keys": {}, "watermarks": {}, "log_bytes": 0, "snapshots": 0,
        "entries": {}, "state_bytes": {},
    }  # fmt: skip
    return events.Progress(epoch, **about)


def test_a_result_has_rows_by_sink_in_the_order_of_epochs_and_events_by_kind():
    made = Result(
        {"out": {10: ["c"], 2: ["a", "b"]}, "none": {}},  # type: ignore[dict-item]
        [progress(2), events.Before(Step.RUN, 10), progress(10)],
    )
    assert (made.rows("out"), made.rows("none")) == (["a", "b", "c"], [])
    assert [event.epoch for event in made.epochs()] == [2, 10]
    assert made.reruns() == []
    with pytest.raises(KeyError):
        made.rows("other")
