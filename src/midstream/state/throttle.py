"""A store that is far away, for experiments: it gives so many bytes per second and no more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Reading:
    """Counts what is read."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Throttle:
    """Makes reading last as long as it would at a given speed. It bounds bandwidth; it adds no delay to a request.

    >>> begun = time.monotonic()
    >>> with Throttle(bytes_per_second=1000).reading() as reading:
    ...     reading.bytes += 20
    >>> time.monotonic() - begun >= 0.02
    True
    """

    bytes_per_second: int = 0  # 0: no limit

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Wait at the end until as much may have come as was read."""
        begun, reading = time.monotonic(), Reading()
        yield reading
        if self.bytes_per_second:
            time.sleep(max(reading.bytes / self.bytes_per_second - (time.monotonic() - begun), 0.0))
