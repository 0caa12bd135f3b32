"""Windows by count by their definition: all rows of a key in a list."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from midstream.plan.windows import CountWindow

Row = tuple[str, Any, int | None]  # key, a number, event time


def shown(key: str, number: int, rows: list[Row]) -> tuple[Any, ...]:
    there = [n for _, n, _ in rows if n is not None]
    mean, low, high = (sum(there) / len(there), min(there), max(there)) if there else (None, None, None)
    return key, number, len(rows), len(there), sum(there) if there else None, mean, low, high, rows[0][1], rows[-1][1]


class Naive:
    """Keeps the rows of windows; which are open is said again for every row."""

    def __init__(self, window: CountWindow) -> None:
        self.window = window
        self.begun: dict[str, list[list[Row]]] = defaultdict(list)  # all windows of a key, whether open or not
        self.sizes: dict[str, list[int]] = defaultdict(list)  # that they began with
        self.over: set[tuple[str, int]] = set()

    def epoch(self, rows: list[Row], watermark: int | None, ends: int | None = None) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for row in rows:
            windows = self.begun[row[0]]
            numbers = [i for i in range(len(windows)) if (row[0], i) not in self.over]
            overlap = self.window.step < self.window.size
            if not numbers or (overlap and len(windows[-1]) >= self.window.step):
                windows.append([])
                self.sizes[row[0]].append(self.window.size)
                numbers.append(len(windows) - 1)
            for i in numbers:
                windows[i].append(row)
                if len(windows[i]) == self.sizes[row[0]][i] or (ends is not None and row[1] == ends):
                    found[shown(row[0], i, windows[i])] += 1
                    self.over.add((row[0], i))
        for key, windows in self.begun.items():
            for i, kept in enumerate(windows):
                times = [at for _, _, at in kept if at is not None]
                done = watermark is not None and times and self.window.timeout and times[0] + self.window.timeout
                if (key, i) not in self.over and done and watermark is not None and done <= watermark:
                    found[shown(key, i, kept)] += 1
                    self.over.add((key, i))
        return found
