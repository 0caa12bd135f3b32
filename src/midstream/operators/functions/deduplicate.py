"""Deduplication: the first row of a key in a span of time passes, the others are dropped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from midstream.durations import Duration, micros
from midstream.errors import PlanError
from midstream.operators.functions.declare import Context, KeyedFunction, value
from midstream.state.timers import Timer

_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)  # the watermark after the end of the input


class Deduplicate(KeyedFunction):
    """Passes a row unless one of its key that passed lies less than `within` away from it.

    Promised: of rows less than `within` apart one passes at most, unless one is later than the watermark by `within`:
    until then what has passed is remembered. Rows without an event time always pass.
    Not promised: which one passes. It is the earliest of an epoch, and the first to arrive of several.

    >>> Deduplicate("1 hour").span
    datetime.timedelta(seconds=3600)
    """

    passed = value("array<timestamp>")  # the times of rows that passed, by event time; else by the epoch's clock

    def __init__(self, within: Duration) -> None:
        self.within = micros(within)
        if not self.within:
            raise PlanError("deduplicate: within= must be longer than 0")

    @property
    def span(self) -> timedelta:
        """How far apart two rows must be for both to pass."""
        return timedelta(microseconds=self.within)

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Iterable[tuple[Any, ...]]:
        """Emit the rows that are the first of their span."""
        passed, span, known = list(self.passed or ()), self.span, len(self.passed or ())
        for row in rows:
            at = ctx.event_time(row) if ctx.has_event_time else ctx.now
            if at is None:
                yield row
            elif not any(abs(at - other) < span for other in passed):
                passed.append(at)
                self._forget_later(at, "event_time" if ctx.has_event_time else "processing_time", ctx)
                yield row
        if len(passed) > known:
            self.passed = passed

    def on_timer(self, key: Any, timer: Timer, ctx: Context) -> None:
        """Forget what is too old to matter."""
        now = ctx.watermark if timer.kind == "event_time" else ctx.now
        kept = [at for at in self.passed or () if _later(at, self.span) > (now or timer.at)]
        for at in kept:  # they have a timer, unless `within` was shorter when they passed
            self._forget_later(at, timer.kind, ctx)
        self.passed = kept or None

    def _forget_later(self, at: datetime, kind: str, ctx: Context) -> None:
        until = _later(at, self.span)
        (ctx.set_event_timer if kind == "event_time" else ctx.set_processing_timer)(until)


def _later(at: datetime, span: timedelta) -> datetime:
    return at + span if at < _LAST - span else _LAST
