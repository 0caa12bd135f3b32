"""Windows by count: which rows of a key begin one, what is kept of those that are open, and the results of that."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from midstream.ddl import struct
from midstream.functions import KeyedFunction, StateDeclaration, value
from midstream.windows import CountWindow

ENDS = "_ends"  # whether a row ends the windows of its key


class Open(NamedTuple):
    """A window that is not full yet; rows of a key are numbered from 0."""

    number: int
    begin: int  # the row that it began with
    size: int
    until: int | None = None  # when it comes out at the latest, once that is known


class Kept(NamedTuple):
    """A part of which results are made, kept for the rows of a pane. A tuple, so that a plan sees what has changed."""

    how: str  # count | sum | min | max | first | last
    column: str  # "": none, rows are counted
    type: str

    @property
    def is_added(self) -> bool:
        """Whether those of two panes are added."""
        return self.how in ("count", "sum")


class Result(NamedTuple):
    """One aggregate of a window: which parts it is made of, by their numbers."""

    function: str
    value: int
    values: int = 0  # sum, mean: how many values there were

    def of(self, parts: list[pa.Array]) -> pa.Array:
        """Work it out, for many windows."""
        if self.function not in ("sum", "mean"):
            return parts[self.value]
        values, counts = (parts[part].to_numpy() for part in (self.value, self.values))
        return pa.array(values / np.maximum(counts, 1) if self.function == "mean" else values, mask=counts == 0)


class CountWindows(KeyedFunction):
    """Says which windows a key has, and what is kept of them; its task is `count_task`.

    Promised: a row begins a window if it is in no window otherwise, or, where windows overlap, `step` rows after the
    one that began the last window; a window keeps the size that it began with, and its timeout once that runs.
    Not promised: that rows of different epochs are taken in the order of event time.
    """

    def __init__(self, window: CountWindow, keys: int, kept: tuple[Kept, ...], results: tuple[Result, ...]) -> None:
        self.size, self.step, self.timeout = window.size, window.step, window.timeout
        self.keys, self.kept, self.results = keys, kept, results  # keys: how many columns of them come out

    def declared(self) -> dict[str, StateDeclaration]:
        """How many rows and windows there were, the open windows, and what their rows are, in panes; oldest first."""
        parts = [(f"part{i}", kept.type) for i, kept in enumerate(self.kept)]
        window = struct([*((name, "bigint") for name in ("number", "begin", "size")), ("until", "timestamp")])
        pane = struct([("begin", "bigint"), *parts])
        numbers = {name: value("bigint") for name in ("seen", "following", "begun")}
        return numbers | {"open": value(f"array<{window}>"), "panes": value(f"array<{pane}>")}

    def begins(self, windows: list[Open], begun: int, at: int, stop: int) -> range:
        """Which of some rows begin a window: the first that is in none, or, where they overlap, the next in turn."""
        first = max((window.begin + window.size for window in windows), default=at)
        if self.step < self.size:
            first = min(first, max(begun + self.step, at))
        return range(first, stop, self.step)


@dataclass(slots=True)
class Key:
    """A key at hand: what is kept of it, and what becomes of its windows."""

    group: int
    encoded: bytes
    seen: int  # rows before this epoch
    following: int  # the number of the next window
    begun: int  # the row with which the last window began
    windows: list[Open]  # oldest first
    panes: list[list[Any]]  # with which row each begins, and what it holds
    first: int = 0  # of its rows in this epoch
    rows: int = 0
    over: list[tuple[Open, int]] = field(default_factory=list)  # windows that come out, and before which row they end
    cuts: list[int] = field(default_factory=list)  # rows of this epoch that begin a pane

    def take_rows(self, windows: CountWindows, ends: tuple[int, ...]) -> None:
        """Begin and end windows; those that are open also behind some of the rows."""
        at, last = self.seen, self.seen + self.rows
        for stop, ends_all in (*((self.seen + end, True) for end in ends), (last, False)):
            begins = windows.begins(self.windows, self.begun, at, stop)
            opened = [Open(number, begin, windows.size) for number, begin in enumerate(begins, self.following)]
            self.following += len(opened)
            self.begun = begins[-1] if begins else self.begun
            still = []
            for window in (*self.windows, *opened):
                end = window.begin + window.size
                if ends_all or end <= stop:
                    self.over.append((window, min(end, stop)))
                else:
                    still.append(window)
            self.windows, at = still, stop
            self.cuts += begins
        self.cuts += [end for _, end in self.over if end < last]

    def end_until(self, moment: int) -> None:
        """End windows whose time is over."""
        is_over = [window.until is not None and window.until <= moment for window in self.windows]
        here = list(zip(self.windows, is_over, strict=True))
        self.over += [(window, self.seen + self.rows) for window, ended in here if ended]
        self.windows = [window for window, ended in here if not ended]

    def span(self, window: Open, end: int) -> tuple[int, int]:
        """Where among the panes and rows of the key a window begins and ends."""
        return self.place(window.begin), len(self.panes) + end - self.seen

    def place(self, begin: int) -> int:
        """Where among the panes and rows of the key a row is with which a window begins."""
        if begin < self.seen:
            return bisect_left(self.panes, begin, key=itemgetter(0))
        return len(self.panes) + begin - self.seen
