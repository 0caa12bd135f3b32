"""Windows whose size or slide has been changed: which of them have which, and the panes that hold their rows.

A *regime* is the windows of one size and slide that start in a span of time. A change begins a new regime after all
rows that have been taken, so what is open keeps its size, and a window holds the rows within its bounds:

    old   |----|----|----|
    new                  |------|------|--- ...
             ^ the latest row when it was changed

Rows of a moment are kept in panes that fit every window over it, so that a window is all panes that start in it. Pure
arithmetic, in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from midstream.plan.windows import LONG_AGO, TimeWindow

FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Regime:
    """Windows of one size and slide that start in a span of time.

    >>> tens = Regime(TimeWindow(10, 10), until=30)
    >>> tens.end, tens.last_end(12), tens.last_end(55), tens.next_end(12, after=20)
    (30, 20, 30, 30)
    >>> tens.next_end(12, after=30) == FOR_EVER
    True
    """

    window: TimeWindow
    since: int = LONG_AGO  # the start of its first window; a multiple of the slide
    until: int = FOR_EVER  # its windows start before

    @property
    def end(self) -> int:
        """The end of its last window."""
        return self.last_end(self.until - 1)

    def starts_after(self, moment: int) -> int:
        """The start of its earliest window that ends after a moment; `FOR_EVER` if there is none."""
        size, slide = self.window.size, self.window.slide
        start = max((moment - size) // slide * slide + slide, self.since)
        return start if start < self.until else FOR_EVER

    def next_end(self, time: int, after: int) -> int:
        """The end of its earliest window that holds a moment or a later one, and ends after another moment.

        `FOR_EVER` if there is none.
        """
        end = max(self.window.next_end(time, after), self.since + self.window.size)
        return end if end - self.window.size < self.until else FOR_EVER

    def last_end(self, time: int) -> int:
        """The end of its latest window that starts at a moment or before; it may end before the moment."""
        return self.window.last_end(min(time, self.until - 1))

    def has_window(self, first: int, last: int, after: int = LONG_AGO, until: int = FOR_EVER) -> bool:
        """Whether one of its windows holds two moments, starts after a third, and ends at a fourth or before.

        >>> [Regime(TimeWindow(10, 5)).has_window(7, last) for last in (14, 15)]
        [True, False]
        >>> [Regime(TimeWindow(10, 5)).has_window(7, 12, after, until=15) for after in (4, 5)]
        [True, False]
        """
        end = self.last_end(min(first, until - self.window.size))
        return end > last and end - self.window.size >= self.since and end - self.window.size > after


@dataclass(frozen=True, slots=True)
class PaneSpan:
    """A span of time in which all panes are of one width."""

    start: int  # no pane begins before and reaches into it
    width: int
    regimes: tuple[Regime, ...]  # that have windows over it


def pane_spans(regimes: Sequence[Regime]) -> tuple[PaneSpan, ...]:
    """The spans of time, one after the other, over which the same regimes have windows.

    >>> [(s.start, s.width) for s in pane_spans([Regime(TimeWindow(10, 5), 0, 20), Regime(TimeWindow(8, 4), 20)])]
    [(0, 5), (20, 1), (25, 4)]
    """
    edges = sorted({edge for regime in regimes for edge in (regime.since, regime.end) if edge < FOR_EVER})
    found = []
    for edge in edges:
        over = tuple(regime for regime in regimes if regime.since <= edge < regime.end)
        found.append(PaneSpan(edge, math.gcd(*(regime.window.pane for regime in over)), over))
    return tuple(found)


def succeeded(regimes: Sequence[Regime], window: TimeWindow, latest: int | None) -> tuple[Regime, ...]:
    """The regimes under a plan that wants windows of a size and slide from now on.

    The new windows start at the first multiple of their slide that is not before the next start of an old one.

    Args:
        regimes: so far; none: the operator is new.
        window: size and slide of new windows.
        latest: the latest row that was taken, or the start of its pane; `None`: there was none.

    >>> succeeded([Regime(TimeWindow(10, 10))], TimeWindow(15, 15), latest=12)[1].since
    30
    """
    if regimes and regimes[-1].window == window:
        return tuple(regimes)
    begun = [regime for regime in regimes if latest is not None and regime.since <= latest]  # others have no rows
    if latest is None or not begun:  # what was before the first regime is forgotten: it does not begin again
        return (Regime(window, _multiple(window.slide, regimes[0].since) if regimes else LONG_AGO),)
    *older, old = begun
    if old.window == window:
        return (*older, replace(old, until=FOR_EVER))
    since = _multiple(window.slide, latest // old.window.slide * old.window.slide + old.window.slide)
    return (*older, replace(old, until=since), Regime(window, since))


def _multiple(slide: int, least: int) -> int:
    """The first multiple that is not before a moment."""
    return least if least == LONG_AGO else -(-least // slide) * slide


def without_past(regimes: Sequence[Regime], forgotten: int) -> tuple[Regime, ...]:
    """Leave out those whose windows have all ended at a moment, and take no rows any more.

    >>> without_past([Regime(TimeWindow(10, 10), until=30), Regime(TimeWindow(15, 15), 30)], forgotten=30)
    (Regime(window=TimeWindow(size=15, slide=15), since=30, until=4611686018427387904),)
    """
    return tuple(regime for regime in regimes if regime.end > forgotten)


def pane_sql(regimes: Sequence[Regime], time: str, forgotten: str | None) -> str:
    """The start of the pane of a row, as SQL; null if all windows that hold it have ended before a moment, also SQL.

    >>> pane_sql([Regime(TimeWindow(10, 5))], "t", forgotten="70L")
    'if(t - pmod(t, 5L) + 10L > 70L, t - pmod(t, 5L), null)'
    """
    parts = pane_spans(regimes)
    panes = [_in_span(part, time, forgotten) for part in parts]
    begins = [part.start for part in parts]
    if begins[0] == LONG_AGO:
        begins = begins[1:]
    else:
        panes = ["null", *panes]
    if not begins:
        return panes[0]
    cases = [f"when {time} < {begin}L then {pane}" for begin, pane in zip(begins, panes, strict=False)]
    return f"case {' '.join(cases)} else {panes[-1]} end"


def _in_span(part: PaneSpan, time: str, forgotten: str | None) -> str:
    pane = f"{time} - pmod({time}, {part.width}L)"
    if part.start != LONG_AGO and part.start % part.width:
        pane = f"if({pane} < {part.start}L, {part.start}L, {pane})"  # greatest() would put a row without time into one
    if forgotten is None:
        return pane
    ends = [
        f"{time} - pmod({time}, {regime.window.slide}L) + {regime.window.size}L"
        if part.start < regime.until
        else f"{regime.end}L"
        for regime in part.regimes
    ]
    last = ends[0] if len(ends) == 1 else f"greatest({', '.join(ends)})"
    return f"if({last} > {forgotten}, {pane}, null)"
