"""Lengths of time as users write them: "10 seconds", "5 minutes", a number of seconds, a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from midstream.errors import PlanError

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
}
_SHORT |= {"h": "hour", "d": "day", "w": "week"}

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-zA-Z]+)")

Duration = str | int | float | timedelta


def micros(duration: Duration) -> int:
    """Turn a length of time into microseconds.

    >>> micros("1.5 seconds"), micros("10 min"), micros(2), micros(timedelta(milliseconds=5))
    (1500000, 600000000, 2000000, 5000)
    >>> micros("1 hour 30 minutes"), micros("1h 30m")
    (5400000000, 5400000000)
    """
    if isinstance(duration, timedelta):
        return _not_negative(duration // timedelta(microseconds=1), duration)
    if isinstance(duration, (int, float)) and not isinstance(duration, bool) and math.isfinite(duration):
        return _not_negative(round(duration * 1_000_000), duration)
    if isinstance(duration, str) and re.match(r"\s*-\s*[0-9.]", duration):
        raise PlanError(f"a length of time cannot be negative: {duration!r}")
    text = str(duration)
    if re.fullmatch(rf"\s*(?:{_PART.pattern}\s*)+", text):
        parts = [(Decimal(number), _unit(word.lower())) for number, word in _PART.findall(text)]
        units = [unit for _, unit in parts]
        if all(units) and units == sorted({*units}, reverse=True):
            return round(sum(number * unit for number, unit in parts))
    raise PlanError(
        f"not a length of time: {duration!r}; write for example '10 seconds', '5 min', '1 hour 30 minutes' or 2.5"
    )


def _unit(word: str) -> int:
    """Return the microseconds of a unit; 0 if there is none of that name."""
    return next(
        (_UNITS[unit] for name in (word, word.removesuffix("s")) if (unit := _SHORT.get(name, name)) in _UNITS), 0
    )


def signed_micros(duration: Duration) -> int:
    """Turn a length of time that may lie in the past into microseconds.

    >>> signed_micros("-5 minutes"), signed_micros(-2), signed_micros("1 second")
    (-300000000, -2000000, 1000000)
    """
    if isinstance(duration, str):
        text = duration.strip()
        return -micros(text[1:]) if text.startswith("-") else micros(text)
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return -micros(-duration) if duration < 0 else micros(duration)


def _not_negative(found: int, duration: Duration) -> int:
    if found < 0:
        raise PlanError(f"a length of time cannot be negative: {duration!r}")
    return found
