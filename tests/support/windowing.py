"""Windows by the definition: every row in every window that holds it, in plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from midstream.plan.window_regimes import Regime, pane_spans

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "user string, price long, ts timestamp"
ENDS = 40  # the least price of a row that ends its window, where rows do
Event = tuple[str | None, int | None, float | None]  # user, price, seconds after the start


def rows_of(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    return [(user, price, None if at is None else START + timedelta(seconds=at)) for user, price, at in events]


def some_events(seed: int, count: int, disorder: float = 5.0, per_second: float = 4.0) -> list[Event]:
    """Rows that are out of order by at most `disorder` seconds; some users are null, some prices negative or null."""
    rng = random.Random(seed)
    users: list[str | None] = [*(["ann", "bob", "cid", "dan"]), None]
    found: list[Event] = []
    for i in range(count):
        price = None if rng.random() < 0.05 else rng.randint(-5, 50)
        found.append((rng.choice(users), price, round(i / per_second + rng.uniform(0, disorder), 3)))
    return found


def cut(events: Sequence[Event], size: int) -> list[list[Event]]:
    return [list(events[at : at + size]) for at in range(0, len(events), size)]


class Naive:
    """Runs epochs one by one."""

    def __init__(
        self, size: int, slide: int, delay: float = 0, lateness: float = 0, *, keyed: bool = True, ends: bool = False
    ) -> None:
        self.size, self.slide, self.delay, self.lateness, self.keyed = size, slide, delay, lateness, keyed
        self.ends = ends  # whether rows may end their window
        self.kept: dict[tuple[Any, int], list[int | None]] = defaultdict(list)  # (user, window start) -> prices
        self.greatest: float | None = None
        self.closed: float = float("-inf")
        self.late: Counter[Any] = Counter()

    def windows(self, at: float) -> list[int]:
        """The starts of all windows that hold a moment."""
        first = int(at - self.size) // self.slide * self.slide - self.slide
        return [s for s in range(first, int(at) + self.slide, self.slide) if s <= at < s + self.size]

    def end(self, start: int) -> int:
        """The end of a window."""
        return start + self.size

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> tuple[Counter[Any], Counter[Any]]:
        """Take rows; gives the windows that close or are closed and change, and all that change."""
        mark = float("inf") if is_last else float("-inf") if self.greatest is None else self.greatest - self.delay
        changed, ended = set(), set()
        for user, price, at in events:
            if at is None or max(map(self.end, self.windows(at))) + self.lateness <= mark:
                self.late[user, price, at, "no event time" if at is None else "late"] += 1
                continue
            for start in self.windows(at):
                if self.end(start) + self.lateness > mark:
                    key = (user if self.keyed else "all", start)
                    self.kept[key].append(price)
                    changed.add(key)
                    if self.ends and price is not None and price >= ENDS:
                        ended.add(key)
        closing = {key for key in self.kept if self.closed < self.end(key[1]) <= mark}
        again = {key for key in changed if self.end(key[1]) <= self.closed}
        times = [at for _, _, at in events if at is not None]
        if times:
            self.greatest = max(times) if self.greatest is None else max(self.greatest, *times)
        self.closed = max(self.closed, mark)
        found = self.shown(closing | again | ended), self.shown(changed)
        for key in ended:
            del self.kept[key]
        return found

    def shown(self, keys: set[tuple[Any, int]]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for user, start in keys:
            prices = self.kept[user, start]
            there = [price for price in prices if price is not None]
            key = (user,) if self.keyed else ()
            bounds = tuple(START + timedelta(seconds=second) for second in (start, self.end(start)))
            found[(*key, *bounds, len(prices), sum(there) if there else None, max(there, default=None))] += 1
        return found


class Changing(Naive):
    """The same with windows whose size and slide are changed between epochs: what is open keeps its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.shapes: list[tuple[float, int, int]] = [(float("-inf"), self.size, self.slide)]  # since, size, slide
        self.rows: list[Event] = []

    def change(self, size: int, slide: int) -> None:
        """New windows start where both an old and a new one could, or later, behind the latest row."""
        if self.shapes[-1][1:] == (size, slide):
            return  # nothing changes
        latest = float("-inf") if self.greatest is None else self.greatest
        self.shapes = [shape for shape in self.shapes if shape[0] <= latest]
        since = float("-inf")
        if self.greatest is not None:
            old = next(s for s in range(int(self.greatest), 10**6) if s > self.greatest and s % self.shapes[-1][2] == 0)
            since = next(s for s in range(old, 10**6) if s % slide == 0)
        self.shapes = [shape for shape in self.shapes if shape[0] < since] + [(since, size, slide)]

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> tuple[Counter[Any], Counter[Any]]:
        self.rows += events
        return super().epoch(events, is_last=is_last)

    def windows(self, at: float) -> list[int]:
        found = []
        for number, (since, size, slide) in enumerate(self.shapes):
            until = self.shapes[number + 1][0] if number + 1 < len(self.shapes) else float("inf")
            found += [
                s for s in range(int(at - size) - 1, int(at) + 1)
                if s % slide == 0 and since <= s < until and s <= at < s + size
            ]  # fmt: skip
        return found

    def end(self, start: int) -> int:
        return start + [size for since, size, _ in self.shapes if since <= start][-1]

    def of_all_rows(self) -> Counter[Any]:
        """All windows, with all the rows that there have been."""
        self.kept.clear()
        for user, price, at in self.rows:
            for start in self.windows(at) if at is not None else ():
                self.kept[user if self.keyed else "all", start].append(price)
        return self.shown(set(self.kept))


def pane_of(regimes: Sequence[Regime], time: int, forgotten: int | None) -> int | None:
    """What the JVM makes of a moment: the start of its pane, none if all its windows are forgotten."""
    found = [segment for segment in pane_spans(regimes) if segment.start <= time]
    if not found:
        return None
    ends = [regime.last_end(time) for regime in found[-1].regimes]
    if forgotten is not None and max(ends) <= forgotten:
        return None
    return max(time // found[-1].width * found[-1].width, found[-1].start)


Timed = tuple[Any, int | None, int, int]  # user, price, microseconds after the start, and with the gap


class NaiveSessions:
    """Runs epochs of sessions one by one: keeps all rows, and puts them together anew in every epoch."""

    def __init__(
        self, gap: float, delay: float = 0, lateness: float = 0, *, keyed: bool = True, ends: bool = False
    ) -> None:
        self.gap, self.delay, self.lateness = (round(seconds * 1e6) for seconds in (gap, delay, lateness))
        self.keyed, self.ends = keyed, ends
        self.kept: list[Timed] = []  # the rows of sessions that still take some
        self.greatest: int | None = None
        self.closed: float = float("-inf")
        self.late: Counter[Any] = Counter()  # user, price, seconds, and why

    def change(self, gap: float) -> None:
        """Rows that come from now on have another gap."""
        self.gap = round(gap * 1e6)

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> tuple[Counter[Any], Counter[Any]]:
        """Take rows; gives the sessions that close or are closed and change, and all that change."""
        mark = float("inf") if is_last else float("-inf") if self.greatest is None else self.greatest - self.delay
        timed = [(user if self.keyed else 0, price, round(at * 1e6)) for user, price, at in events if at is not None]
        rows = [(*row, row[2] + self.gap) for row in timed]
        old = self.sessions(self.kept)
        taken_after = (self.closed if is_last else mark) - self.lateness  # at the end rows come before the watermark
        forgotten = [s for s in old if self.end(s) <= taken_after]
        kept = [s for s in old if s not in forgotten]
        now = self.sessions([row for session in kept for row in session] + rows)
        late = [s for s in now if self.end(s) <= taken_after]
        now = [s for s in now if s not in late]
        changed = [s for s in now if s not in kept]
        closing = [s for s in forgotten if self.end(s) > self.closed]
        closing += [s for s in now if self.end(s) <= mark and (s in changed or self.end(s) > self.closed)]
        ended = [s for s in now if self.ends and any(price is not None and price >= ENDS for _, price, _, _ in s)]
        closing += [s for s in ended if s not in closing]
        self.late.update((*event, "no event time") for event in events if event[2] is None)
        self.late.update((user, price, at / 1e6, "late") for session in late for user, price, at, _ in session)
        self.kept = [row for session in now if session not in ended for row in session]
        self.greatest = max(
            [at for _, _, at, _ in rows] + ([] if self.greatest is None else [self.greatest]), default=None
        )
        self.closed = max(self.closed, mark)
        return self.shown(closing), self.shown(changed)

    def end(self, session: list[Timed]) -> int:
        return max(end for _, _, _, end in session)

    def sessions(self, rows: Sequence[Timed]) -> list[list[Timed]]:
        """Cut the rows of each user where nothing comes for the gap."""
        found: list[list[Timed]] = []
        for row in sorted(rows, key=lambda r: (str(r[0]), r[2], str(r[1]))):
            if found and found[-1][0][0] == row[0] and row[2] < self.end(found[-1]):
                found[-1].append(row)
            else:
                found.append([row])
        return found

    def shown(self, sessions: list[list[Timed]]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for session in sessions:
            prices = [price for _, price, _, _ in session if price is not None]
            key = (session[0][0],) if self.keyed else ()
            bounds = (START + timedelta(microseconds=at) for at in (session[0][2], self.end(session)))
            found[(*key, *bounds, len(session), sum(prices) if prices else None, max(prices, default=None))] += 1
        return found


def late_rows(naive: Naive | NaiveSessions) -> Counter[Any]:
    """The rows that are late, with the reason, as Spark gives them."""
    return Counter((*utc(rows_of([event[:3]])[0]), event[3]) for event in naive.late.elements())


def bounds(start: int, size: int) -> tuple[datetime, datetime]:
    """When a window begins and ends."""
    return START + timedelta(seconds=start), START + timedelta(seconds=start + size)


def utc(row: Any) -> tuple[Any, ...]:
    """A row of Spark with its times as they are in UTC."""
    return tuple(value.astimezone() if hasattr(value, "astimezone") else value for value in row)


def expected(naive: Naive | NaiveSessions, lists: list[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """What comes out over all epochs, and after the end: of windows that close, and of windows that change."""
    closed, updates = Counter[Any](), Counter[Any]()
    for events in lists:
        now, changed = naive.epoch(events)
        closed, updates = closed + now, updates + changed
    return closed + naive.epoch([], is_last=True)[0], updates
