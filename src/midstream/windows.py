"""Windows: spans of event time that rows are put together by."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.durations import Duration, micros
from midstream.errors import PlanError


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows `[k * size, (k + 1) * size)` of event time, counted from 1970-01-01 UTC."""

    size: int  # microseconds


def tumbling(size: Duration) -> Tumbling:
    """Cut event time into windows of one size, one after the other.

    >>> tumbling("10 seconds")
    Tumbling(size=10000000)
    """
    if micros(size) < 1:
        raise PlanError(f"tumbling: a window must last longer than {size!r}")
    return Tumbling(size=micros(size))
