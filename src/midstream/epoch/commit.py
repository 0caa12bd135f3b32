"""The next commit record, worked out from the last one and what a run of an epoch has left."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import replace

import msgspec

from midstream.checkpoint.records import (
    NEVER,
    Commit,
    Intent,
    LogRef,
    OperatorState,
    Report,
    SnapshotRef,
)
from midstream.epoch.attempt import Outcome
from midstream.epoch.publication import delivered, targets_of
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.watermarks import regimes_of
from midstream.plan import plan as p
from midstream.plan.window_regimes import without_past
from midstream.state.backlog import left_over


def next_record(
    last: Commit | None,
    intent: Intent,
    offsets: tuple[str, ...],
    outcome: Outcome,
    resolved: Resolved,
    groups: int,
    forgotten: frozenset[str] = frozenset(),
    lost: Collection[str] = (),
    *,
    final: bool,
) -> Commit:
    """Write the record of an epoch; state of operators that the plan no longer has is kept unless it is forgotten."""
    id = f"{secrets.randbits(63):016x}"  # a positive number everywhere
    before = last.operators if last is not None else {}
    targets = targets_of(resolved.plan)
    operators = {
        name: msgspec.structs.replace(state, logs=()) for name, state in before.items() if name not in forgotten
    }
    for name, found in outcome.reports.items():
        state = operators.get(name, OperatorState(born=intent.epoch))
        known = last.event_times if last is not None else {}
        after = _advanced(state, found, intent.epoch, id, resolved.keyed[name], groups, known, final)
        operators[name] = _with_regimes(after, resolved, name, state)
    times = dict(last.event_times) if last is not None else {}
    for name, seen in outcome.event_times.items():
        times[name] = max(times.get(name, seen), seen)
    return Commit(
        epoch=intent.epoch,
        id=id,
        parent=last.id if last is not None else "",
        version=intent.version,
        clock=intent.clock,
        offsets=offsets,
        operators=operators,
        sinks=tuple(replace(staged, commit=id, target=targets[staged.sink]) for staged in outcome.staged),
        delivered={sink: each for sink, each in delivered(last, targets).items() if sink not in lost},
        event_times=times,
        seen={
            watermark.id: intent.clock
            if watermark.id in outcome.event_times or last is None
            else last.seen.get(watermark.id, intent.clock)
            for watermark in resolved.plan.of(p.Watermark)
        },
        final=final,
    )


def epoch_of(change: tuple[int, str] | None) -> int:
    """Return the epoch of a group's last change."""
    return NEVER if change is None else change[0]


def _with_regimes(after: OperatorState, resolved: Resolved, id: str, before: OperatorState) -> OperatorState:
    """Note the regimes of windows that an epoch ran under, but for those that are past for all groups."""
    windows, regimes = p.windows_of(resolved.plan, id), regimes_of(resolved, id, before)
    if windows is not None and after.watermark is not None and not after.backlog:
        regimes = without_past(regimes, after.watermark - windows.lateness)
    return msgspec.structs.replace(after, regimes=regimes)


def _advanced(
    state: OperatorState,
    found: list[tuple[str, Report]],
    epoch: int,
    id: str,
    keyed: Keyed,
    groups: int,
    event_times: dict[str, int],
    final: bool,
) -> OperatorState:
    caught_up = {group for _, report in found for group in report.caught_up}
    aside = tuple(report.deferred for _, report in found if report.deferred is not None)
    backlog = (*left_over(state.backlog, caught_up), *aside)
    changed = list(state.changed or (None,) * groups)
    snapshots = list(state.snapshots or (None,) * groups)
    deadlines = dict(state.deadlines)
    logs = []
    marks = [state.watermark, *(report.watermark for _, report in found if not final)]
    for path, report in found:
        if report.groups:
            size = sum(changes for _, changes in report.groups)
            links = tuple((group, changes, epoch_of(changed[group])) for group, changes in report.groups)
            logs.append(LogRef(report.slot, path, size, links))
        for group, _ in report.groups:
            changed[group] = (epoch, id)
        for group, at, commit, stored, size, checksum in report.snapshots:
            snapshots[group] = SnapshotRef(at, commit, stored, size, checksum)
        for group, (event, clock) in report.deadlines.items():
            deadlines.pop(group, None)
            if event is not None or clock is not None:
                deadlines[group] = (event, clock)
    return OperatorState(
        born=state.born,
        backlog=backlog,
        hold=(state.hold if state.backlog else event_times) if backlog else {},
        logs=tuple(logs),
        changed=tuple(changed),
        snapshots=tuple(snapshots),
        deadlines=deadlines,
        layouts={**state.layouts, keyed.base: keyed.layout},
        top=max(state.top, keyed.top),
        watermark=max((w for w in marks if w is not None), default=None),
        latest=max((t for t in (state.latest, *(r.latest for _, r in found)) if t is not None), default=None),
    )
