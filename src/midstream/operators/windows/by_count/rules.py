"""Windows by count: which rows of a key begin one, what is kept of open ones, and the results computed from it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.operators.functions.declare import KeyedFunction, StateDeclaration, value
from midstream.plan.windows import CountWindow
from midstream.spark.types import struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ALL = "_all"  # the key where there is none
ENDS = "_ends"  # the column that says whether a row ends the windows of its key


class Open(NamedTuple):
    """A window that is not full yet; rows of a key are numbered from 0."""

    number: int
    begin: int  # the row that it began with
    size: int
    until: int | None = None  # when it is emitted at the latest, once that is known


class CountPart(NamedTuple):
    """What is kept of a column, for some rows, to compute results. A tuple, so that a plan sees what has changed."""

    how: str  # count | sum | total (a sum as a double) | min | max | first | last
    column: str  # "": none, rows are counted
    type: str

    @property
    def name(self) -> str:
        """Its name in the state: what has another meaning has another name."""
        return f"{self.how} {self.column}".strip()

    @property
    def is_added(self) -> bool:
        """Whether it adds up over rows."""
        return self.how in ("count", "sum", "total")


class CountResult(NamedTuple):
    """One aggregate of a window: the parts it is computed from, by their numbers."""

    function: str
    value: int
    values: int = 0  # sum, mean: how many values there were

    def of(self, parts: list[pa.Array]) -> pa.Array:
        """Compute it, for many windows."""
        if self.function not in ("sum", "mean"):
            return parts[self.value]
        values, counts = parts[self.value], parts[self.values].to_numpy()
        if self.function == "mean":
            return pa.array(values.cast(pa.float64()).to_numpy() / np.maximum(counts, 1), mask=counts == 0)
        return pc.if_else(pa.array(counts == 0), None, values)


class CountWindows(KeyedFunction):
    """Says which windows a key has, and what is kept of them; its task is `count_task`.

    Promised: a row begins a window if it is in no window otherwise, or, where windows overlap, `step` rows after the
    one that began the last window; a window keeps the size that it began with, and its timeout once that runs.
    Not promised: that rows of different epochs are taken in the order of event time.
    """

    def __init__(
        self,
        window: CountWindow,
        keys: int,
        parts: tuple[CountPart, ...],
        results: tuple[CountResult, ...],
        *,
        ends: bool = False,
    ) -> None:
        self.size, self.step, self.timeout = window.size, window.step, window.timeout
        self.keys, self.parts, self.results = keys, parts, results  # keys: how many columns of them are emitted
        self.ends = ends  # whether rows may end windows

    def declared(self) -> dict[str, StateDeclaration]:
        """What `Key` has: some numbers, the open windows, and what their rows are, in panes; oldest first."""
        window = struct([*((name, "bigint") for name in ("number", "begin", "size")), ("until", "timestamp")])
        pane = struct([("begin", "bigint"), *((part.name, part.type) for part in self.parts)])
        numbers = {name: value("bigint") for name in ("seen", "following", "begun", "ended")}
        return numbers | {"open": value(f"array<{window}>"), "panes": value(f"array<{pane}>")}

    def begins(self, open_: list[Open], begun: int, at: int, stop: int) -> range:
        """Return the rows that begin a window: the first that is in none, or, where they overlap, the next in turn."""
        first = max((window.begin + window.size for window in open_), default=at)
        if self.step < self.size:
            first = min(first, max(begun + self.step, at))
        return range(first, stop, self.step)


@dataclass(slots=True)
class Key:
    """The current key: what is kept of it, and what becomes of its windows."""

    group: int
    encoded: bytes
    seen: int  # rows before this epoch
    following: int  # the number of the next window
    begun: int  # the row with which the last window began
    ended: int  # the row before which the last window ended that was full
    open: list[Open]  # oldest first
    panes: list[list[Any]]  # kept: with which row each begins, and what it holds
    first: int = 0  # of its rows in this epoch
    rows: int = 0
    over: list[tuple[Open, int]] = field(default_factory=list)  # windows to emit, and before which row they end
    cuts: list[int] = field(default_factory=list)  # rows of this epoch that begin a pane

    def take_rows(self, rules: CountWindows, ends: Sequence[int]) -> None:
        """Begin and end windows; after the rows in `ends` all open ones end."""
        at, last = self.seen, self.seen + self.rows
        self.cuts += [at] if self.ended == at else []  # as if the epoch had not ended there: sums are rounded alike
        for stop, ends_all in (*((self.seen + end, True) for end in ends), (last, False)):
            begins = rules.begins(self.open, self.begun, at, stop)
            self.open += [Open(number, begin, rules.size) for number, begin in enumerate(begins, self.following)]
            self.following += len(begins)
            self.begun = begins[-1] if begins else self.begun
            still = []
            for window in self.open:
                end = window.begin + window.size
                if ends_all or end <= stop:
                    self.over.append((window, min(end, stop)))
                else:
                    still.append(window)
            self.open, at = still, stop
            self.cuts += begins
        ended = [end for _, end in self.over]
        self.cuts += [end for end in ended if end < last]
        self.ended = max(ended, default=self.ended)

    def end_until(self, moment: int) -> None:
        """End windows whose time is over."""
        is_over = [window.until is not None and window.until <= moment for window in self.open]
        here = list(zip(self.open, is_over, strict=True))
        self.over += [(window, self.seen + self.rows) for window, ended in here if ended]
        self.open = [window for window, ended in here if not ended]

    def place(self, begin: int) -> int:
        """The position, among the kept panes and the rows of the key, of the one that begins with a row."""
        if begin < self.seen:
            return bisect_left(self.panes, begin, key=itemgetter(0))
        return len(self.panes) + begin - self.seen


@dataclass(frozen=True)
class Marked:
    """Adds to rows what they lack: whether they end the windows of their key, and a key."""

    punctuation: str
    as_one: bool

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Add the columns."""
        ends = [f"coalesce({self.punctuation}, false) as {ENDS}"] if self.punctuation else []
        return rows.selectExpr("*", *ends, *([f"0 as {ALL}"] if self.as_one else []))
