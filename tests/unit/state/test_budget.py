"""The budget of an epoch for copying: bytes or seconds, whichever is spent first."""

from __future__ import annotations

import pytest

from midstream.state.budget import Budget


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the clock that budgets look at."""
    clock = Clock()
    monkeypatch.setattr("midstream.state.budget.time.perf_counter", clock)
    return clock


def bring(budget: Budget, clock: Clock, seconds: float, bytes: int = 0) -> bool:
    """Bring a group that takes so long, and say whether another one may follow."""
    with budget.bringing():
        clock.now += seconds
        budget.copied += bytes
    return not budget.is_spent


def test_bytes_are_spent_when_as_many_were_copied(clock: Clock):
    budget = Budget(bytes=100, seconds=60)
    assert not budget.is_spent
    assert bring(budget, clock, 0, 99)
    assert not bring(budget, clock, 0, 1)


def test_seconds_are_spent_when_another_group_like_the_last_would_take_too_long(clock: Clock):
    budget = Budget(bytes=1 << 30, seconds=10)
    assert [bring(budget, clock, seconds) for seconds in (3, 3, 3)] == [True, True, False]
    quick = Budget(bytes=1 << 30, seconds=10)
    assert [bring(quick, clock, seconds) for seconds in (4, 1, 1, 3)] == [True, True, True, False]


def test_what_passes_between_groups_does_not_count(clock: Clock):
    budget = Budget(bytes=1, seconds=10)
    assert bring(budget, clock, 4)
    clock.now += 1000
    assert not budget.is_spent


@pytest.mark.parametrize("budget", [Budget(0, 60), Budget(100, 0), Budget(0, 0.0)])
def test_of_nothing_all_is_spent_from_the_start(budget: Budget):
    assert budget.is_spent


def test_who_gives_up_copies_nothing_more(clock: Clock):
    budget = Budget(bytes=100, seconds=60)
    budget.give_up()
    assert budget.is_spent
