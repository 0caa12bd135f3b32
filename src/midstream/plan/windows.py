"""Windows of event time: where they begin and end, and the panes that they share. Pure arithmetic, in microseconds.

A window holds `[start, start + size)`; windows start at multiples of their slide. Sliding windows overlap, so rows are
kept once, in *panes* as long as the greatest common divisor of size and slide, and a window is merged from its
panes when it is closed: what a row costs does not depend on how many windows it is in. Sessions begin and end where
their rows do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from midstream.durations import Duration, micros
from midstream.errors import PlanError

BOUNDS = ("window_start", "window_end")  # the columns that say where a window begins and ends
LONG_AGO = -(1 << 62)  # before all rows
FIRST_TIME = -62_135_596_800_000_000  # 0001-01-01
END_OF_TIME = 253_402_300_799_000_000  # the watermark after the end of the input: 9999-12-31


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows of one size that start at one interval.

    >>> ten = TimeWindow(10, 5)
    >>> ten.pane, ten.first_end(12), ten.last_end(12)
    (5, 15, 20)
    >>> ten.next_end(12, after=15)
    20
    """

    size: int
    slide: int

    @property
    def is_tumbling(self) -> bool:
        """Whether every moment is in one window."""
        return self.size == self.slide

    @property
    def pane(self) -> int:
        """How long a pane is."""
        return math.gcd(self.size, self.slide)

    @property
    def kept_in(self) -> str:
        """The form in which state is kept, in words."""
        return "in panes"

    def first_end(self, time: int) -> int:
        """The end of the earliest window that holds a moment."""
        return (time - self.size) // self.slide * self.slide + self.slide + self.size

    def last_end(self, time: int) -> int:
        """The end of the latest window that holds a moment."""
        return time // self.slide * self.slide + self.size

    def next_end(self, time: int, after: int) -> int:
        """The end of the earliest window that holds a moment or a later one, and ends after another moment."""
        return max(self.first_end(time), (after - self.size) // self.slide * self.slide + self.slide + self.size)


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that last while rows follow each other within a gap.

    >>> Session(1_500_000).kept_in
    'in sessions'
    """

    gap: int

    @property
    def kept_in(self) -> str:
        """The form in which state is kept, in words."""
        return "in sessions"


AnyWindow = TimeWindow | Session


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of a number of rows."""

    size: int
    step: int
    timeout: int = 0  # microseconds; 0: a window waits for its rows for ever


def tumbling(size: Duration) -> TimeWindow:
    """Windows one after the other: every row is in exactly one.

    >>> tumbling("10 seconds").pane
    10000000
    """
    return sliding(size, size)


def sliding(size: Duration, slide: Duration) -> TimeWindow:
    """Windows of a size, one starting every `slide`, which is at most the size: they overlap.

    >>> sliding("10 seconds", "2 seconds").pane
    2000000
    """
    window = TimeWindow(micros(size), micros(slide))
    if window.size <= 0 or window.slide <= 0:
        raise PlanError(f"a window needs a size and a slide above zero, not {size!r} and {slide!r}")
    if window.slide > window.size:
        raise PlanError(f"windows of {size!r} that start every {slide!r} would leave rows out; filter them first")
    return window


def session(gap: Duration) -> Session:
    """Windows that begin with a row and end `gap` after the last one, when no other has come by then.

    Promised: two rows of a key are in one session if less than `gap` lies between them, or if others bridge the time
    between them. Not promised: a greatest length; rows without a pause are one session, kept until it ends.

    >>> session("30 minutes").gap
    1800000000
    """
    made = Session(micros(gap))
    if made.gap <= 0:
        raise PlanError(f"a session needs a gap above zero, not {gap!r}")
    return made


def count_window(size: int, step: int | None = None, timeout: Duration | None = None) -> CountWindow:
    """Windows of `size` rows of a key, one beginning every `step` rows; without `step` one after the other.

    Promised: with a `timeout` a window that is not full is emitted that long after its first row, in event time if
    there is one, else by the clock of the epochs. Not promised: that it is ever emitted, without one.

    >>> count_window(100, 10, "1 minute")
    CountWindow(size=100, step=10, timeout=60000000)
    """
    step = size if step is None else step
    if not (isinstance(size, int) and isinstance(step, int) and 1 <= step <= size):
        raise PlanError(
            f"a window by count needs a whole number of rows, and a step between 1 and it, not {size!r} and {step!r}"
        )
    if timeout is not None and not micros(timeout):
        raise PlanError("the timeout of a window by count must be longer than 0")
    return CountWindow(size, step, micros(timeout) if timeout is not None else 0)
