"""Timers of a key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Timer:
    """A deadline of a key: `event_time` fires when the watermark passes it, `processing_time` by the clock."""

    kind: str  # "event_time" | "processing_time"
    at: datetime
