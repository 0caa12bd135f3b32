"""Where in time rows belong, as SQL: their panes and windows, and which rows no window takes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream import plan as p
from midstream.aggregates import quote
from midstream.regimes import Regime, pane_sql
from midstream.resolve import LATE_REASON, Resolved
from midstream.watermarks import ahead, varying
from midstream.windows import BOUNDS, END_OF_TIME, Session, Window

if TYPE_CHECKING:
    from midstream.dataflow import KeyedRun


@dataclass(frozen=True, slots=True)
class WindowSql:
    """The times of the rows of one epoch."""

    resolved: Resolved
    keyed: Mapping[str, KeyedRun]
    clock: int  # of the epoch

    def pane(self, window: p.Window) -> str:
        """The start of a row's pane; null for a row that comes too late.

        A row is its own start of a session: whether it is late, its task knows.
        """
        time = pane = self._time(window)
        if not isinstance(window.spec, Session):
            passed = self._passed(window)
            pane = pane_sql(self.regimes(window), time, None if passed is None else varying(passed, time))
        limit = ahead(self.resolved, window.id, self.clock)
        return f"({pane})" if limit is None else f"if({time} <= {varying(limit, time)}, {pane}, null)"

    def regimes(self, window: p.Window) -> tuple[Regime, ...]:
        """Which windows have which size and slide."""
        assert isinstance(window.spec, Window)
        return self.keyed[window.id].regimes or (Regime(window.spec),)

    def is_taken(self, windows: p.Spread) -> str:
        """Whether one of the windows takes a row."""
        first, last = self._starts(windows)
        limit, time = ahead(self.resolved, windows.of, self.clock), self._time(windows)
        near = "" if limit is None else f" and {time} <= {varying(limit, time)}"
        return f"coalesce({first} <= {last}{near}, false)"

    def count_late(self, windows: p.Spread) -> str:
        """How many rows none of the windows takes."""
        return f"count_if(not {self.is_taken(windows)})"

    def spread(self, windows: p.Spread) -> list[str]:
        """The columns of a row that is taken, once for each of its windows, with the bounds."""
        first, last = self._starts(windows)
        begin, end = (f"timestamp_micros(_start{more})" for more in ("", f" + {windows.size}L"))
        rows = f"explode(sequence({first}, {last}, {windows.slide}L)) as _start"
        return [rows, f"{begin} as {BOUNDS[0]}", f"{end} as {BOUNDS[1]}"]

    def late(self, late: p.Late, table: str) -> str:
        """The rows that no window takes, and why, as a query; of sessions `table` has no others."""
        windows = p.windows_of(self.resolved.plan, late)
        time, limit = self._time(windows), ahead(self.resolved, late.of, self.clock)
        too_far = f"when {time} > {varying(limit, time)} then 'too far ahead' " if limit is not None else ""
        reason = f"case when {time} is null then 'no event time' {too_far}else 'late' end"
        if isinstance(windows, p.Spread):
            condition = f"not {self.is_taken(windows)}"
        else:
            condition = "true" if windows.gap else f"{self.pane(windows)} is null"
        return f"select *, {reason} as {LATE_REASON} from {table} where {condition}"

    def _starts(self, windows: p.Spread) -> tuple[str, str]:
        """Of the windows that a row is in and that are open, when the first and the last begin."""
        size, slide, time = windows.size, windows.slide, self._time(windows)
        first = f"{time} - {size}L - pmod({time} - {size}L, {slide}L) + {slide}L"
        passed = self._passed(windows)
        if passed is not None:
            opened = passed - size
            first = f"greatest({first}, {varying(opened - opened % slide + slide, time)})"
        return first, f"{time} - pmod({time}, {slide}L)"

    def _time(self, windows: p.Window | p.Spread) -> str:
        return f"unix_micros({quote(str(self.resolved.event_times[windows.inputs[0]]))})"

    def _passed(self, windows: p.Window | p.Spread) -> int | None:
        """Up to where windows take no more rows."""
        epoch = self.keyed[windows.of].epoch
        passed = epoch.watermark
        if passed is not None and (passed >= END_OF_TIME or self.is_of_windows(windows)):
            passed = epoch.before  # rows that this epoch makes come before its watermark
        lateness = windows.lateness if isinstance(windows, p.Window) else 0
        return None if passed is None else passed - lateness

    def is_of_windows(self, windows: p.Window | p.Spread) -> bool:
        """Whether the rows of a window are windows that close in this epoch."""
        return any(isinstance(above, p.Window) for above in self.resolved.plan.upstream(windows.inputs[0]))
