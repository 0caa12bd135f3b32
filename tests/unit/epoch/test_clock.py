"""The clock of the epochs: never back, never standing still for long, and slow to believe that it was set."""

from __future__ import annotations

from midstream.epoch.clock import JUMP, SECOND, SLEW, TRUST, EpochClock

YEARS = 10 * 365 * 86_400 * SECOND
START = 1_800_000_000 * SECOND


class Machine:
    """A wall clock that can be set, over time that passes."""

    def __init__(self) -> None:
        self.passed, self.set_by = 0, 0
        self.said: list[str] = []
        self.clock = EpochClock(
            lambda: START + self.passed + self.set_by, lambda: self.passed, lambda text, *v: self.said.append(text % v)
        )
        self.last = 0

    def epoch(self, seconds: float = 1.0) -> int:
        self.passed += int(seconds * SECOND)
        self.last = self.clock.after(self.last)
        return self.last - START


def test_without_a_jump_it_is_the_wall_clock() -> None:
    machine = Machine()
    assert [machine.epoch() for _ in range(3)] == [SECOND, 2 * SECOND, 3 * SECOND]
    machine.set_by = JUMP // 2
    assert machine.epoch() == 4 * SECOND + JUMP // 2
    assert machine.said == []


def test_a_clock_that_is_years_ahead_for_an_epoch_is_not_followed() -> None:
    machine = Machine()
    machine.epoch()
    machine.set_by = YEARS
    assert machine.epoch() == 2 * SECOND
    machine.set_by = 0
    assert machine.epoch() == 3 * SECOND
    assert len(machine.said) == 1
    assert "was set by 3650.0 days" in machine.said[0]


def test_a_clock_that_stays_set_is_believed_after_a_while() -> None:
    machine = Machine()
    machine.epoch()
    machine.set_by = YEARS
    machine.epoch()
    assert machine.epoch(TRUST / SECOND) == YEARS + machine.passed


def test_after_years_ahead_were_journalled_time_goes_on_as_fast_as_ever() -> None:
    machine = Machine()
    machine.last = START + YEARS  # by a process whose clock was wrong when it started
    first = machine.epoch()
    assert first == YEARS
    assert [machine.epoch() - first for _ in range(3)] == [SECOND, 2 * SECOND, 3 * SECOND]
    assert [text for text in machine.said if "ahead of this machine's" in text] == machine.said
    assert len(machine.said) == 1


def test_a_little_ahead_is_made_up_for_at_half_speed() -> None:
    machine = Machine()
    machine.last = START + 10 * SECOND
    times = [machine.epoch(2) for _ in range(20)]
    assert times == sorted(times)
    assert times[-1] == machine.passed, "it has caught up"
    assert times[1] - times[0] == SECOND


def test_it_never_goes_back_whatever_is_read() -> None:
    machine = Machine()
    told = []
    for set_by in (0, -YEARS, 5 * SECOND, -30 * SECOND, YEARS, -SLEW, 0, SLEW):
        machine.set_by = set_by
        told += [machine.epoch(40) for _ in range(3)]
    assert told == sorted(told)


def test_a_clock_that_is_given_is_believed_at_once_and_goes_on_after_a_jump_back() -> None:
    readings = iter([10 * SECOND, YEARS, 11 * SECOND, 12 * SECOND, 14 * SECOND])
    clock, last, told = EpochClock(lambda: next(readings), None, lambda *_: None), 0, []
    for _ in range(5):
        last = clock.after(last)
        told.append(last)
    assert told == [10 * SECOND, YEARS, YEARS, YEARS + SECOND, YEARS + 3 * SECOND]
