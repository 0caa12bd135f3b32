"""Timers of a group behave as a plain set of deadlines would: what is due is taken, the next ones are known."""

from __future__ import annotations

import datetime as dt

import pytest

from midstream.state.keyed import GroupState
from midstream.state.timers import Timer
from midstream.state.values import moment_of
from tests.support.group_states import at_clock


@pytest.fixture
def state() -> GroupState:
    """Give the state of an empty group at the clock 1000, bound to a key."""
    state = at_clock(1000)
    state.bind(b"key")
    return state


def set_timers(state: GroupState, *timers: tuple[bytes, str, int]) -> None:
    for key, kind, at in timers:
        state.bind(key)
        state.set(Timer(kind, moment_of(at)))
        state.release()


def test_timers_are_due_by_time_then_kind_then_key():
    state = at_clock(50)
    set_timers(
        state,
        (b"b", "processing_time", 10),
        (b"b", "event_time", 10),
        (b"a", "processing_time", 10),
        (b"z", "event_time", -5),
        (b"a", "event_time", 20),
        (b"a", "event_time", 21),
        (b"a", "processing_time", 51),
    )
    assert state.take_due(20) == [
        (b"z", Timer("event_time", moment_of(-5))),
        (b"b", Timer("event_time", moment_of(10))),
        (b"a", Timer("processing_time", moment_of(10))),
        (b"b", Timer("processing_time", moment_of(10))),
        (b"a", Timer("event_time", moment_of(20))),
    ]
    assert state.take_due(20) == []
    assert state.next_deadlines() == (21, 51)


def test_without_a_watermark_no_event_timer_is_due():
    state = at_clock(50)
    set_timers(state, (b"a", "event_time", -(10**15)), (b"a", "processing_time", 50))
    assert state.take_due(None) == [(b"a", Timer("processing_time", moment_of(50)))]
    assert state.next_deadlines() == (-(10**15), None)


def test_a_timer_set_twice_fires_once_and_a_cleared_one_never():
    state = at_clock(50)
    set_timers(
        state, (b"a", "event_time", 1), (b"a", "event_time", 1), (b"a", "event_time", 2), (b"b", "event_time", 2)
    )
    state.bind(b"a")
    state.clear(Timer("event_time", moment_of(2)))
    state.clear(Timer("event_time", moment_of(3)))
    assert [(key, timer.at) for key, timer in state.take_due(9)] == [(b"a", moment_of(1)), (b"b", moment_of(2))]
    assert state.next_deadlines() == (None, None)


def test_a_timer_without_a_zone_is_in_utc(state: GroupState):
    state.set(Timer("event_time", dt.datetime(1970, 1, 1, 0, 0, 1)))
    assert state.next_deadlines() == (1_000_000, None)


def test_a_timer_needs_a_moment(state: GroupState):
    with pytest.raises(TypeError, match="a timer needs a datetime, not 5"):
        state.set(Timer("event_time", 5))  # type: ignore[arg-type]


def test_timers_that_were_taken_stay_taken_when_a_call_is_taken_back():
    state = at_clock(50)
    set_timers(state, (b"a", "event_time", 1), (b"a", "event_time", 30))
    state.mark()
    set_timers(state, (b"a", "event_time", 2))
    assert [timer.at for _, timer in state.take_due(9)] == [moment_of(1), moment_of(2)]
    state.take_back()
    assert state.take_due(9) == []
    assert state.next_deadlines() == (30, None)
