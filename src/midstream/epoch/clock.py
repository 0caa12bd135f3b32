"""The clock of the epochs: never backwards, and not thrown off by a wall clock that is wrong for a while.

Timers, time to live and idle sources hang on it, and its time is journalled, so an epoch that is repeated is told the
same. A wall clock may be set, also by years. Within a process another clock, which nobody can set, tells how much time
has passed; so a jump is seen as one, and is followed only after it has lasted. Where a time was journalled that lies
ahead of the wall clock, time goes on from there instead of standing still until the wall clock is there too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SECOND = 1_000_000
JUMP = 60 * SECOND  # a wall clock that gains or loses more than this between two epochs has been set
TRUST = 60 * SECOND  # for how long it must then tell the same time until it is believed
SLEW = 3600 * SECOND  # up to here time goes on at half speed until the wall clock has caught up

_log = logging.getLogger("midstream")


def wall() -> int:
    """Microseconds since 1970, as the machine has it."""
    return time.time_ns() // 1000


def steady() -> int:
    """Microseconds that nobody can set; they go on while the machine sleeps, where the system can tell."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


@dataclass(slots=True)
class EpochClock:
    """Tells an epoch its time.

    Promised: it never goes back, and it goes on whenever its reading does. A jump of the wall clock by more than a
    minute is followed after it has lasted a minute. Not promised: that it is right where the wall clock is wrong for
    longer; it may then be ahead, and says so in the log.
    """

    reading: Callable[[], int] = wall
    steady: Callable[[], int] | None = steady  # None: what is read is believed at once
    warn: Callable[..., None] = _log.warning
    _offset: int | None = None  # of the reading to the steady clock, as it is believed
    _doubted: tuple[int, int] | None = None  # another offset, and since when
    _before: int | None = None  # what was told by the reading before, as it is believed
    _told: set[str] = field(default_factory=set)

    def after(self, last: int) -> int:
        """Return the time of an epoch that follows one with the time `last`."""
        now = self._believed()
        passed = max(now - self._before, 0) if self._before is not None else 0
        self._before = now
        if now >= last:
            self._told.discard("ahead")
            return now
        if last - now > JUMP:
            self._once("ahead", "the clock of the epochs is %s ahead of this machine's", _shown(last - now))
        return last + (passed if last - now > SLEW else passed // 2)

    def _believed(self) -> int:
        """What the reading says, or would say had it not been set a moment ago."""
        reading = self.reading()
        if self.steady is None:
            return reading
        now = self.steady()
        offset = reading - now
        if self._offset is None or abs(offset - self._offset) <= JUMP:
            self._offset, self._doubted = offset, None
            return reading
        if self._doubted is None or abs(offset - self._doubted[0]) > JUMP:
            self._doubted = (offset, now)
            self.warn("this machine's clock was set by %s; followed if it stays so", _shown(offset - self._offset))
        elif now - self._doubted[1] >= TRUST:
            self._offset, self._doubted = offset, None
            return reading
        return now + self._offset

    def _once(self, about: str, text: str, *values: object) -> None:
        if about not in self._told:
            self._told.add(about)
            self.warn(text, *values)


def _shown(micros: int) -> str:
    seconds = micros / SECOND
    return f"{seconds / 86400:.1f} days" if abs(seconds) >= 2 * 86400 else f"{seconds:.0f} seconds"
