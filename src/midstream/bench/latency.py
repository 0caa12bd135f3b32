"""The latency of rows under a constant load, computed from the times when epochs begin and end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from midstream.bench.oracle import ResultError
from midstream.bench.workbench import pause

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_STEP = 0.01  # seconds between the rows that are sampled


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """An epoch as Spark reports it: seconds since 1970."""

    begin: float
    end: float
    number: int = -1
    rows: int = 0

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


def epochs_of(query: StreamingQuery) -> list[EpochTimes]:
    """List the epochs of a query that Spark has reported."""
    found = []
    for progress in query.recentProgress:
        begin = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        if "triggerExecution" in progress["durationMs"]:
            end = begin + progress["durationMs"]["triggerExecution"] / 1000
            found.append(EpochTimes(begin, end, progress["batchId"], progress["numInputRows"]))
    return found


def latencies(epochs: Sequence[EpochTimes], begin: float, end: float) -> Any:
    """The latencies of rows that were created between two moments, at a constant rate.

    >>> latencies([EpochTimes(0, 1), EpochTimes(1, 3)], 0.5, 0.515).round(2).tolist()
    [2.5, 2.49]
    """
    moments = np.arange(begin, end, _STEP)
    begins = np.array([epoch.begin for epoch in epochs])
    ends = np.array([epoch.end for epoch in epochs])
    taken = np.searchsorted(begins, moments)  # an epoch takes what was created before it began
    known = taken < len(epochs)
    return ends[taken[known]] - moments[known]


def quantiles(found: Any) -> dict[str, float]:
    """The median, the 99th percentile and the greatest of latencies, in milliseconds."""
    if len(found) == 0:
        raise ResultError("no epoch ended in the stretch that was measured: the load is too high for this machine")
    wanted = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: milliseconds(float(np.quantile(found, quantile))) for name, quantile in wanted.items()}


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds."""
    return round(1000 * seconds)


def stay(seconds: float) -> None:
    """Let epochs go on for a while; Ctrl-C takes effect here."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pause()
