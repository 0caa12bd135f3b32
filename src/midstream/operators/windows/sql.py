"""SQL of windows: the panes and windows that rows belong to, and which rows no window takes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.operators.aggregates.declare import event_time
from midstream.operators.resolved import Resolved
from midstream.operators.watermarks import ahead, varying
from midstream.plan import plan as p
from midstream.plan.sql import quote
from midstream.plan.window_regimes import FOR_EVER, Regime, pane_sql
from midstream.plan.windows import BOUNDS, END_OF_TIME, LONG_AGO, Session, TimeWindow

if TYPE_CHECKING:
    from midstream.operators.keyed_run import KeyedRun


LATE_REASON = "late_reason"


@dataclass(frozen=True, slots=True)
class WindowSql:
    """The times of the rows of one epoch."""

    resolved: Resolved
    keyed: Mapping[str, KeyedRun]
    clock: int  # of the epoch

    def pane(self, window: p.Window) -> str:
        """The start of a row's pane; null for a late row.

        In a session a row is its own start; only the task knows whether it is late.
        """
        time = pane = self._time(window)
        if not isinstance(window.spec, Session):
            passed = self._passed(window)
            pane = pane_sql(self.regimes(window), time, None if passed is None else varying(passed, time))
        limit = ahead(self.resolved, window.id, self.clock)
        return f"({pane})" if limit is None else f"if({time} <= {varying(limit, time)}, {pane}, null)"

    def regimes(self, windows: p.Window | p.Spread) -> tuple[Regime, ...]:
        """Which windows have which size and slide."""
        assert isinstance(windows.spec, TimeWindow)
        return self.keyed[windows.of].regimes or (Regime(windows.spec),)

    def is_taken(self, windows: p.Spread) -> str:
        """Whether one of the windows takes a row."""
        limit, time = ahead(self.resolved, windows.of, self.clock), self._time(windows)
        near = "" if limit is None else f" and {time} <= {varying(limit, time)}"
        has_some = " or ".join(f"{first} <= {last}" for _, first, last in self._starts(windows))
        return f"coalesce(({has_some}){near}, false)"

    def count_late(self, windows: p.Spread) -> str:
        """How many rows none of the windows takes."""
        return f"count_if(not {self.is_taken(windows)})"

    def spread(self, windows: p.Spread) -> list[str]:
        """The columns of a row that is taken, once for each of its windows, with the bounds."""
        *older, newest = self._starts(windows)
        found = [
            f"if({first} <= {last}, sequence({first}, {last}, {regime.window.slide}L), cast(array() as array<long>))"
            for regime, first, last in (*older, newest)
        ]
        size = f"{newest[0].window.size}L"
        if older:
            cases = (f"when _start < {regime.until}L then {regime.window.size}L" for regime, _, _ in older)
            size = f"case {' '.join(cases)} else {size} end"
        begin, end = (f"timestamp_micros(_start{more})" for more in ("", f" + {size}"))
        return [f"explode(concat({', '.join(found)})) as _start", f"{begin} as {BOUNDS[0]}", f"{end} as {BOUNDS[1]}"]

    def late(self, late: p.Late, table: str) -> str:
        """The rows that no window takes, and why, as a query; of sessions `table` has no others."""
        windows = p.windows_late_for(self.resolved.plan, late)
        time, limit = self._time(windows), ahead(self.resolved, late.of, self.clock)
        too_far = f"when {time} > {varying(limit, time)} then 'too far ahead' " if limit is not None else ""
        is_null, is_odd = f"{quote(self._column(windows))} is null", f"{time} is null"
        known = f"when {is_null} then 'no event time' when {is_odd} then 'outside the years 1 to 9999'"
        reason = f"case {known} {too_far}else 'late' end"
        if isinstance(windows, p.Spread):
            condition = f"not {self.is_taken(windows)}"
        else:
            condition = "true" if windows.gap else f"{self.pane(windows)} is null"
        return f"select *, {reason} as {LATE_REASON} from {table} where {condition}"

    def _starts(self, windows: p.Spread) -> list[tuple[Regime, str, str]]:
        """The starts of the first and the last open window that a row is in, for each size and slide."""
        time, passed, found = self._time(windows), self._passed(windows), []
        for regime in self.regimes(windows):
            size, slide = regime.window.size, regime.window.slide
            first = f"{time} - {size}L - pmod({time} - {size}L, {slide}L) + {slide}L"
            last = f"{time} - pmod({time}, {slide}L)"
            opened = regime.since if passed is None else regime.starts_after(passed)
            if opened > LONG_AGO:
                first = f"greatest({first}, {varying(opened, time)})"
            if regime.until < FOR_EVER:
                last = f"least({last}, {regime.until - 1}L)"
            found.append((regime, first, last))
        return found

    def _time(self, windows: p.Window | p.Spread) -> str:
        return event_time(self._column(windows))

    def _column(self, windows: p.Window | p.Spread) -> str:
        return str(self.resolved.event_times[windows.inputs[0]])

    def _passed(self, windows: p.Window | p.Spread) -> int | None:
        """The time up to which windows take no more rows."""
        epoch = self.keyed[windows.of].epoch
        passed = epoch.watermark
        if passed is not None and (passed >= END_OF_TIME or self.is_of_windows(windows)):
            passed = epoch.before  # rows that this epoch emits come before its watermark
        return None if passed is None else passed - windows.lateness

    def is_of_windows(self, windows: p.Window | p.Spread) -> bool:
        """Whether the rows of a window are windows that close in this epoch."""
        return any(isinstance(above, p.Window) for above in self.resolved.plan.upstream(windows.inputs[0]))
