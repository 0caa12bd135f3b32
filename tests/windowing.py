"""Windows by the definition: every row in every window that holds it, in plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "user string, price long, ts timestamp"
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

    def __init__(self, size: int, slide: int, delay: float = 0, lateness: float = 0, *, keyed: bool = True) -> None:
        self.size, self.slide, self.delay, self.lateness, self.keyed = size, slide, delay, lateness, keyed
        self.kept: dict[tuple[Any, int], list[int | None]] = defaultdict(list)  # (user, window start) -> prices
        self.greatest: float | None = None
        self.closed: float = float("-inf")
        self.late: Counter[Any] = Counter()

    def windows(self, at: float) -> list[int]:
        """The starts of all windows that hold a moment."""
        first = int(at - self.size) // self.slide * self.slide - self.slide
        return [s for s in range(first, int(at) + self.slide, self.slide) if s <= at < s + self.size]

    def epoch(self, events: Sequence[Event], *, is_last: bool = False) -> tuple[Counter[Any], Counter[Any]]:
        """Take rows; gives the windows that close or are closed and change, and all that change."""
        mark = float("inf") if is_last else float("-inf") if self.greatest is None else self.greatest - self.delay
        changed = set()
        for user, price, at in events:
            if at is None or max(self.windows(at)) + self.size + self.lateness <= mark:
                self.late[user, price, at, "no event time" if at is None else "late"] += 1
                continue
            for start in self.windows(at):
                if start + self.size + self.lateness > mark:
                    key = (user if self.keyed else "all", start)
                    self.kept[key].append(price)
                    changed.add(key)
        closing = {key for key in self.kept if self.closed < key[1] + self.size <= mark}
        again = {key for key in changed if key[1] + self.size <= self.closed}
        times = [at for _, _, at in events if at is not None]
        if times:
            self.greatest = max(times) if self.greatest is None else max(self.greatest, *times)
        self.closed = max(self.closed, mark)
        return self.shown(closing | again), self.shown(changed)

    def shown(self, keys: set[tuple[Any, int]]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for user, start in keys:
            prices = self.kept[user, start]
            there = [price for price in prices if price is not None]
            key = (user,) if self.keyed else ()
            bounds = tuple(START + timedelta(seconds=second) for second in (start, start + self.size))
            found[(*key, *bounds, len(prices), sum(there) if there else None, max(there, default=None))] += 1
        return found
