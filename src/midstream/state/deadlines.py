"""Deadlines of a group: timers of its keys, and when to look for what has expired."""

from __future__ import annotations

from datetime import datetime

from midstream.state.changed import ChangedEntries
from midstream.state.entries import EVENT, EXPIRY, PROCESSING, deadline_bytes, deadline_of
from midstream.state.stores.contract import Reader
from midstream.state.timers import Timer
from midstream.state.values import micros_of, moment_of

_TIMERS = {"event_time": EVENT, "processing_time": PROCESSING}


def timer_entry(timer: Timer, key: bytes) -> bytes:
    """The entry of a timer of a key."""
    if not isinstance(timer.at, datetime):
        raise TypeError(f"a timer needs a datetime, not {timer.at!r}")
    return bytes((_TIMERS[timer.kind],)) + deadline_bytes(micros_of(timer.at)) + key


class TimedEntries(ChangedEntries):
    """Entries of a group with its deadlines: what is due is taken out, and the next ones are known."""

    def __init__(self, reader: Reader, now: int) -> None:
        super().__init__(reader)
        self.now = now
        self._taken: dict[int, int] = {}  # kind of deadline -> moment up to which they have been taken

    def take_due(self, watermark: int | None) -> list[tuple[bytes, Timer]]:
        """Remove the timers that are due and return them with their keys: by time, then kind, then key."""
        due = []
        for kind, limit in (("event_time", watermark), ("processing_time", self.now)):
            entries = self.take_until(_TIMERS[kind], limit)
            due += [(deadline_of(entry), entry[0], entry[9:], kind) for entry in entries]
        return [(key, Timer(kind, moment_of(at))) for at, _, key, kind in sorted(due)]

    def take_until(self, tag: int, limit: int | None) -> list[bytes]:
        """Remove the entries of one kind, of timers or of expiry, up to a moment, and return them."""
        if limit is None:
            return []
        start = bytes((tag,))
        entries = [entry for entry, _ in self.scan(start, start + deadline_bytes(limit + 1))]
        self.remove_for_good(start, entries)
        self._taken[tag] = limit
        return entries

    def next_deadlines(self) -> tuple[int | None, int | None]:
        """Return the next event-time and processing-time deadline of the group."""
        event = self._next(EVENT)
        clock = [d for d in (self._next(PROCESSING), self._next(EXPIRY)) if d is not None]
        return event, min(clock, default=None)

    def _next(self, tag: int) -> int | None:
        kind = bytes((tag,))
        start = kind + (deadline_bytes(self._taken[tag] + 1) if tag in self._taken else b"")
        first = self.first(kind, start, bytes((tag + 1,)))
        return deadline_of(first) if first is not None else None
