"""When epochs begin, and whether the input ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

import midstream as ms
from midstream.flow.triggers import Trigger, available_now, every


@pytest.mark.parametrize(
    ("interval", "expected"),
    [("1 second", 1_000_000), (0, 0), (2.5, 2_500_000), (timedelta(milliseconds=3), 3_000), ("5 minutes", 300_000_000)],
)
def test_epochs_begin_in_an_interval_and_never_end(interval: ms.Duration, expected: int):
    assert every(interval) == Trigger(interval=expected, once=False, end_of_input=False)


def test_what_is_there_is_taken_as_fast_as_possible_and_may_be_all_there_will_ever_be():
    assert available_now() == Trigger(interval=0, once=True, end_of_input=False)
    assert available_now(end_of_input=True) == Trigger(interval=0, once=True, end_of_input=True)


@pytest.mark.parametrize("interval", [-1, "-1 second", "soon", ""])
def test_an_interval_that_is_none_is_refused(interval: ms.Duration):
    with pytest.raises(ms.MidstreamError):
        every(interval)
