"""The keyed functions behind a join: what they keep of each side, and when a row has found all it can find.

Rows of both sides come in one form: key columns, `_side`, `_time`, and a struct per side, the other one null.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any

from midstream.functions import Context, KeyedFunction, StateDeclaration, Timer, ValueState, list_of, map_of, value
from midstream.state.wire import micros_of, moment_of

LEFT, RIGHT = "left", "right"
_SIDES = (LEFT, RIGHT)
_KEEPS = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": _SIDES}  # whose rows come out without a match
_FIRST = micros_of(datetime(1, 1, 1, tzinfo=timezone.utc))
_LAST = micros_of(datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc))  # the watermark after the end of the input
Produced = Iterator[tuple[Any, ...]]


class JoinFunction(KeyedFunction):
    """What all joins share: the form of rows, and the state, whose types are those of the two sides.

    Attributes are plain, so that a plan knows a changed join from one that is the same.
    """

    def __init__(self, *, keys: int, widths: tuple[int, int], types: tuple[str, str], how: str) -> None:
        self.keys, self.widths, self.types, self.how = keys, widths, types, how

    def _both(self, key: Any, side: str, row: dict[str, Any], other: dict[str, Any]) -> tuple[Any, ...]:
        left, right = (row, other) if side == LEFT else (other, row)
        return (*self._key(key), *_columns(left, self.widths[0]), *_columns(right, self.widths[1]))

    def _alone(self, key: Any, side: str, row: dict[str, Any]) -> tuple[Any, ...]:
        left, right = self.widths
        if side == LEFT:
            return (*self._key(key), *_columns(row, left), *[None] * right)
        return (*self._key(key), *[None] * left, *_columns(row, right))

    def _key(self, key: Any) -> tuple[Any, ...]:
        return (key,) if self.keys == 1 else tuple(key)

    def _never_matches(self, key: Any) -> bool:
        """As in SQL, nothing equals null."""
        return any(part is None for part in self._key(key))


def _columns(row: dict[str, Any], width: int) -> list[Any]:
    return list(row.values())[:width]  # a side without columns has a stand-in


class UnboundedJoin(JoinFunction):
    """Every pair of rows with one key, once, when the later one arrives; rows are kept for ever, or for a TTL."""

    def __init__(self, *, keys: int, widths: tuple[int, int], types: tuple[str, str], ttl: int) -> None:
        super().__init__(keys=keys, widths=widths, types=types, how="inner")
        self.ttl = ttl

    def declared(self) -> dict[str, StateDeclaration]:
        """A list per side, to which rows are only ever added."""
        ttl = timedelta(microseconds=self.ttl) if self.ttl else None
        return {side: list_of(type, ttl=ttl) for side, type in zip(_SIDES, self.types, strict=True)}

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Produced:
        """Pair new rows with those that are kept, and with each other."""
        if self._never_matches(key):
            return
        new: dict[str, list[dict[str, Any]]] = {LEFT: [], RIGHT: []}
        for *_, side, _, left, right in rows:
            new[side].append(left if side == LEFT else right)
        kept = {side: self.bound_state(side).read(side) for side in _SIDES}
        known = {side: list(kept[side]) if new[_other(side)] else [] for side in _SIDES}
        for left in new[LEFT]:
            for right in chain(known[RIGHT], new[RIGHT]):
                yield self._both(key, LEFT, left, right)
        for left in known[LEFT]:
            for right in new[RIGHT]:
                yield self._both(key, LEFT, left, right)
        for side in _SIDES:
            kept[side].extend(new[side])


class BoundedJoin(JoinFunction):
    """Pairs of rows with one key whose event times lie in one window, or in an interval of each other.

    Promised: a row is kept until the watermark has passed all that it could match, and comes out alone then, if its
    side is kept by the join and it has found nothing. The rows that come out in all do not depend on epochs.
    Not promised: that a late row finds what it would have found in time.
    """

    def __init__(
        self,
        *,
        keys: int,
        widths: tuple[int, int],
        types: tuple[str, str],
        how: str,
        lower: int = 0,
        upper: int = 0,
        size: int = 0,
    ) -> None:
        super().__init__(keys=keys, widths=widths, types=types, how=how)
        self.lower, self.upper = lower, upper  # of right time - left time, in microseconds
        self.size = size  # of a window; 0: an interval

    def declared(self) -> dict[str, StateDeclaration]:
        """Per side a map from event time to the rows of that time; and when something is next to be dropped."""
        found: dict[str, StateDeclaration] = {
            side: map_of("timestamp", f"array<struct<row: {type}, matched: boolean>>")
            for side, type in zip(_SIDES, self.types, strict=True)
        }
        deadline: ValueState = value("timestamp")
        return {"deadline": deadline, **found}

    def reach(self, side: str, time: int) -> tuple[int, int]:
        """The first and the last event time on the other side that a row can match."""
        if self.size:
            start = time - time % self.size
            return start, start + self.size - 1
        return (time + self.lower, time + self.upper) if side == LEFT else (time - self.upper, time - self.lower)

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Produced:
        """Match each row with those that are kept, in the order of event time, then keep it."""
        if self._never_matches(key):
            yield from (self._alone(key, side, left or right) for *_, side, _, left, right in rows if self._keeps(side))
            return
        kept = {side: self._kept(side) for side in _SIDES}
        for *_, side, moment, left, right in rows:
            row = left if side == LEFT else right
            if moment is None:
                if self._keeps(side):
                    yield self._alone(key, side, row)
                continue
            time, found = micros_of(moment), False
            for other in kept[_other(side)].matching(*self.reach(side, time)):
                found = True
                yield self._both(key, side, row, other)
            kept[side].add(time, row, found if self._keeps(side) else None)
        yield from self._dropped(key, kept, ctx, {side: kept[side].changed for side in _SIDES})

    def on_timer(self, key: Any, timer: Timer, ctx: Context) -> Produced:
        """Drop what can match nothing any more."""
        kept = {side: self._kept(side) for side in _SIDES}
        self._write("deadline", None)
        yield from self._dropped(key, kept, ctx, {side: kept[side].times for side in _SIDES})

    def _dropped(self, key: Any, kept: dict[str, _Kept], ctx: Context, looked_at: dict[str, Iterable[int]]) -> Produced:
        """Drop the rows of some times if the watermark has passed all they could match; look again in time."""
        deadlines = []
        for side, times in looked_at.items():
            for time in sorted(times):
                deadline = self._deadline(side, time)
                if ctx.watermark is None or deadline > micros_of(ctx.watermark):
                    deadlines.append(deadline)
                    continue
                for row in kept[side].drop(time, look=self._keeps(side)):
                    if row["matched"] is False:
                        yield self._alone(key, side, row["row"])
            kept[side].write()
        if deadlines:
            self._look_again(moment_of(min(deadlines)), ctx)

    def _look_again(self, at: datetime, ctx: Context) -> None:
        """Keep one timer per key: that of the row that goes first."""
        known = self.bound_state("deadline").read("deadline")
        if known is None or at < known:
            if known is not None:
                ctx.clear_event_timer(known)
            ctx.set_event_timer(at)
            self._write("deadline", at)

    def _deadline(self, side: str, time: int) -> int:
        """The watermark from which on nothing can match: what comes then is not before it."""
        return min(max(self.reach(side, time)[1] + 1, _FIRST), _LAST)

    def _keeps(self, side: str) -> bool:
        return side in _KEEPS[self.how]

    def _kept(self, side: str) -> _Kept:
        return _Kept(self.bound_state(side).read(side))

    def _write(self, name: str, value: Any) -> None:
        self.bound_state(name).write(name, value)


class _Kept:
    """The rows of one side of a key while an epoch is at work: read where needed, written once per event time."""

    def __init__(self, stored: Any) -> None:
        self._stored = stored
        self._times: list[int] | None = None
        self._rows: dict[int, list[dict[str, Any]]] = {}  # event time -> its rows, where they were looked at
        self.changed: set[int] = set()
        self._new: set[int] = set()  # event times that nothing is stored of

    @property
    def times(self) -> list[int]:
        """All event times, in order."""
        if self._times is None:
            self._times = sorted({*map(micros_of, self._stored), *self._rows})
        return self._times

    def matching(self, low: int, high: int) -> Iterator[dict[str, Any]]:
        """Give the rows between two times, and note that they have found something."""
        times = self.times
        for time in times[bisect_left(times, low) : bisect_right(times, high)]:
            for row in self._at(time):
                if row["matched"] is False:  # None: it does not matter
                    row["matched"] = True
                    self.changed.add(time)
                yield row["row"]

    def add(self, time: int, row: dict[str, Any], matched: bool | None) -> None:
        """Keep one more row."""
        rows = self._at(time)
        if not rows and self._times is not None:
            insort(self._times, time)
        rows.append({"row": row, "matched": matched})
        self.changed.add(time)

    def drop(self, time: int, *, look: bool) -> list[dict[str, Any]]:
        """Keep the rows of a time no longer, and give them, if they are to be looked at."""
        rows = self._at(time) if look else []
        self._rows[time] = []
        self.changed.add(time)
        return rows

    def write(self) -> None:
        """Write the times that have changed."""
        for time in sorted(self.changed):
            if self._rows[time]:
                self._stored[moment_of(time)] = self._rows[time]
            elif time not in self._new:
                self._stored.discard(moment_of(time))

    def _at(self, time: int) -> list[dict[str, Any]]:
        if time not in self._rows:
            stored = self._stored.get(moment_of(time))
            if stored is None:
                self._new.add(time)
            self._rows[time] = stored or []
        return self._rows[time]


def _other(side: str) -> str:
    return RIGHT if side == LEFT else LEFT
