"""Lengths of time as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.durations import micros, signed_micros
from midstream.errors import PlanError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("1 second", SECOND),
        ("10 seconds", 10 * SECOND),
        ("1.5 seconds", 1_500_000),
        (".5s", 500_000),
        ("0 s", 0),
        ("5 min", 300 * SECOND),
        ("5 mins", 300 * SECOND),
        ("2 secs", 2 * SECOND),
        ("5m", 300 * SECOND),
        ("2 hours", 7200 * SECOND),
        ("1h", 3600 * SECOND),
        ("3 days", 3 * 86_400 * SECOND),
        ("1 week", 7 * 86_400 * SECOND),
        ("250 ms", 250_000),
        ("250 milliseconds", 250_000),
        ("7us", 7),
        ("7 microseconds", 7),
        ("  2   MINUTES ", 120 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1 week 2 days 3 hours 4 min 5.5 s 6 ms 7 us", (9 * 86_400 + 3 * 3600 + 4 * 60 + 5) * SECOND + 506_007),
        (2, 2 * SECOND),
        (0.25, 250_000),
        (timedelta(milliseconds=5), 5_000),
        (timedelta(days=1, microseconds=1), 86_400 * SECOND + 1),
    ],
)
def test_a_length_of_time_is_counted_in_microseconds(written: Any, found: int):
    assert micros(written) == found
    assert type(micros(written)) is int


@given(
    st.integers(0, 10**15), st.sampled_from(["microsecond", "millisecond", "second", "minute", "hour", "day", "week"])
)
def test_whole_numbers_of_any_unit_are_exact(number: int, unit: str):
    size = {"microsecond": timedelta(microseconds=1), "millisecond": timedelta(milliseconds=1)}
    one = size.get(unit) or timedelta(**{f"{unit}s": 1})
    assert micros(f"{number} {unit}s") == number * (one // timedelta(microseconds=1))


@pytest.mark.parametrize(
    "written",
    [
        *("", "5", "seconds", "5 parsecs", "five seconds", "1.2.3 s", ". s", "5 seconds ago", "1e3 s"),
        *("30 minutes 1 hour", "1 hour 2 hours", "1 hour 30", "1 hour, 30 minutes", "1 hour -5 s"),
    ],
)
def test_what_is_no_length_of_time_is_refused_with_examples(written: str):
    with pytest.raises(PlanError, match=r"not a length of time: .*; write for example '10 seconds'"):
        micros(written)


@pytest.mark.parametrize("written", [float("nan"), float("inf"), True, None, [1]])
def test_what_is_no_number_of_seconds_is_refused(written: Any):
    with pytest.raises(PlanError, match="not a length of time"):
        micros(written)


@pytest.mark.parametrize("written", [-1, -0.5, timedelta(seconds=-1), "-5 seconds", " - 1 min"])
def test_a_negative_length_is_refused(written: Any):
    with pytest.raises(PlanError, match="cannot be negative"):
        micros(written)


def test_the_sign_of_a_signed_length_is_that_of_all_its_parts():
    assert signed_micros("-1 hour 30 minutes") == -5400 * SECOND
