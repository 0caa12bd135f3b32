"""Watermarks: what rows say of event time, what an operator may rely on having seen, and what windows it has.

All of it is computed from commit records and the journalled clock, so a repetition of an epoch sees the same.
"""

from __future__ import annotations

from midstream.checkpoint.records import Commit, OperatorState
from midstream.operators.aggregates.declare import event_time
from midstream.operators.resolved import Resolved
from midstream.plan import plan as p
from midstream.plan.window_regimes import Regime, succeeded
from midstream.plan.windows import TimeWindow


def observed(operator: p.Watermark, clock: int) -> str:
    """The event time that a row counts with, as SQL: null if it is too far ahead of the clock of its epoch.

    A punctuation says that nothing before it follows, so it counts as if the delay had passed already.
    """
    time = event_time(operator.column)
    counted = time
    if operator.punctuation:
        counted = f"greatest({time}, if({operator.punctuation}, {time} + {operator.delay}L, null))"
    return f"if({time} <= {varying(clock + operator.ahead, time)}, {counted}, null)" if operator.ahead else counted


def varying(value: int, row: str) -> str:
    """A number that differs in each epoch, as SQL; null where `row`, any number of the current row, is null.

    Spark compiles the code of a query again when a number in it changes, and runs it cold. Arrays are data to it.

    >>> varying(7, "`ts`")
    'get(array(7L), cast(pmod(`ts`, 1L) as int))'
    """
    return f"get(array({value}L), cast(pmod({row}, 1L) as int))"


def ahead(resolved: Resolved, id: str, clock: int) -> int | None:
    """The moment after which an operator's rows are too far ahead; `None` if there is no such bound."""
    bounds = [resolved.plan[w].ahead for w in resolved.keyed[id].watermarks]  # type: ignore[union-attr]
    return clock + min(b for b in bounds if b) if any(bounds) else None


def watermark_of(resolved: Resolved, id: str, commit: Commit | None, clock: int) -> int | None:
    """The watermark after a commit: the least over the watermark operators above, `None` while one has no rows.

    One that has had no rows for longer than it may be idle is left out, unless all are idle. It waits for rows that an
    operator above has put aside.
    """
    above = resolved.keyed[id].watermarks
    if commit is None or not above:
        return None
    awake = [w for w in above if not _is_idle(resolved, w, commit, clock)] or [
        w for w in above if w in commit.event_times
    ]
    known = [commit.event_times]
    for operator in resolved.plan.upstream(id):
        state = commit.operators.get(operator.id)
        if operator.id != id and state is not None and state.backlog:
            known.append(state.hold)
    if not awake or any(w not in times for w in awake for times in known):
        return None
    return min(times[w] - _declared(resolved, w).delay for w in awake for times in known)


def regimes_of(resolved: Resolved, id: str, state: OperatorState) -> tuple[Regime, ...]:
    """Which windows of an operator have which size and slide, after a commit; none if it has none of a fixed size."""
    windows = p.windows_of(resolved.plan, id)
    if windows is None or not isinstance(windows.spec, TimeWindow):
        return ()
    latest = state.latest
    if isinstance(windows, p.Spread) and latest is not None and state.watermark is not None:
        latest = max(latest, state.watermark)  # of a row that only some of its windows took, the latest is not known
    return succeeded(state.regimes, windows.spec, latest)


def _is_idle(resolved: Resolved, id: str, commit: Commit, clock: int) -> bool:
    allowed = _declared(resolved, id).idle
    return bool(allowed) and clock - commit.seen.get(id, clock) > allowed


def _declared(resolved: Resolved, id: str) -> p.Watermark:
    operator = resolved.plan[id]
    assert isinstance(operator, p.Watermark)
    return operator
