"""CPU time that the processes of a benchmark use, and bytes that they write to disks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used up to a moment, or between two of them."""

    cpu_seconds: float = 0.0
    written: int = 0  # bytes, without what goes to memory file systems, pipes and sockets

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.cpu_seconds - before.cpu_seconds, self.written - before.written)

    def per_million(self, rows: int) -> dict[str, float]:
        """Return it per million rows: CPU seconds and megabytes."""
        return {
            "cpu_s_per_million": round(self.cpu_seconds / rows * 1e6, 3),
            "mb_per_million": round(self.written / rows, 1),
        }


def used() -> Usage:
    """What this process and all below it have used so far: Python, Java, and Spark's workers with their executors.

    Not promised: what processes used that have ended since.

    >>> used().cpu_seconds > 0
    True
    """
    this = psutil.Process()
    seconds, written = 0.0, 0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():  # it has ended meanwhile
            times = process.cpu_times()
            seconds += times.user + times.system
            written += process.io_counters().write_bytes
    return Usage(seconds, written)
