"""A store that is far away: reading lasts as long as it would at its speed, and no longer."""

from __future__ import annotations

import pytest

from midstream.state.throttle import Throttle


class Clock:
    """A clock on which time passes only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the clock that throttles look at, and wait by."""
    clock = Clock()
    monkeypatch.setattr("midstream.state.throttle.time", clock)
    return clock


@pytest.mark.parametrize(
    ("speed", "bytes", "took", "lasts"),
    [
        (0, 1 << 40, 0.5, 0.5),  # no limit
        (1000, 0, 0.0, 0.0),
        (1000, 0, 0.5, 0.5),
        (1000, 20, 0.0, 0.02),
        (1000, 500, 0.2, 0.5),  # what has passed already counts
        (1000, 500, 0.5, 0.5),
        (1000, 500, 3.0, 3.0),  # slower than the limit: nothing is added
    ],
)
def test_reading_lasts_as_long_as_at_its_speed(clock: Clock, speed: int, bytes: int, took: float, lasts: float):
    with Throttle(speed).reading() as reading:
        clock.now += took
        reading.bytes += bytes
    assert clock.now == pytest.approx(100 + lasts)


def test_each_reading_is_counted_by_itself(clock: Clock):
    throttle = Throttle(10)
    for _ in range(3):
        with throttle.reading() as reading:
            assert reading.bytes == 0
            reading.bytes += 5
            reading.bytes += 5
    assert clock.now == pytest.approx(103)
