"""The rows with the greatest value of a column, per window: the top rows of an epoch, and those of all epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream.operators.functions.declare import Context, KeyedFunction, StateDeclaration, list_of
from midstream.plan.sql import quote
from midstream.state.timers import Timer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Leading:
    """The top rows of each window in one epoch; the last column says whether any row has ended the window."""

    n: int
    by: str
    keys: tuple[str, ...]
    punctuation: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Drop the other rows."""
        by, keys = quote(self.by), ", ".join(map(quote, self.keys))
        rank = f"rank() over (partition by {keys} order by {by} desc nulls last)"
        ends = [f"coalesce(bool_or({self.punctuation}) over (partition by {keys}), false) as _ends"]
        found = rows.selectExpr("*", *(ends if self.punctuation else ()), f"{rank} as _rank")
        return found.where(f"_rank <= {self.n}").drop("_rank")


class Top(KeyedFunction):
    """Keeps the top rows of a window until it is over, and emits them then: at its end, or when a row says so.

    Promised: null ranks last, NaN first, as in Spark. Without ties, of equal rows those whose columns are smaller,
    one after the other; null is smaller than all else.
    """

    takes_revised = False  # a window that is emitted twice would be ranked against itself

    def __init__(self, n: int, at: int, ties: bool, type: str, *, ends: bool) -> None:
        self.n, self.at, self.ties, self.type, self.ends = n, at, ties, type, ends

    def declared(self) -> dict[str, StateDeclaration]:
        """The top rows so far."""
        return {"best": list_of(self.type)}

    def process(self, key: Any, rows: list[Any], ctx: Context) -> Iterable[tuple[Any, ...]]:
        """Keep the top rows, or emit them if one of the rows has ended the window."""
        kept, width = self.bound_state("best").read("best"), -1 if self.ends else None
        leading = self._leading([*(tuple(row.values()) for row in kept), *(tuple(row[:width]) for row in rows)])
        is_over = self.ends and rows[0][-1]
        self.bound_state("best").write("best", () if is_over else leading)
        (ctx.clear_event_timer if is_over else ctx.set_event_timer)(key.window_end)
        return leading if is_over else ()

    def on_timer(self, key: Any, timer: Timer, ctx: Context) -> Iterable[tuple[Any, ...]]:
        """Emit it."""
        kept = self.bound_state("best").read("best")
        found = [tuple(row.values()) for row in kept]
        kept.clear()
        return found

    def _leading(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        ranked = sorted(rows, key=self._rank, reverse=True)
        if len(ranked) <= self.n:
            return ranked
        least = self._rank(ranked[self.n - 1])
        if self.ties:
            return [row for row in ranked if self._rank(row) >= least]
        above = [row for row in ranked if self._rank(row) > least]
        equal = sorted((row for row in ranked if self._rank(row) == least), key=_in_order)
        return [*above, *equal[: self.n - len(above)]]

    def _rank(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return _in_order(row[self.at])


def _in_order(value: Any) -> tuple[Any, ...]:
    """Return the sort key of a value: null first, NaN last, nested values by their parts.

    >>> sorted([11, None, -5, 4], key=_in_order), sorted([(2, "b"), (2, None), (1, "c")], key=_in_order)
    ([None, -5, 4, 11], [(1, 'c'), (2, None), (2, 'b')])
    """
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        value = tuple(value.items())
    return (1, tuple(map(_in_order, value)) if isinstance(value, (tuple, list)) else value)
