"""The next commit record, worked out from what an epoch began with and what its run has left."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace

import msgspec

from midstream.checkpoint.records import NEVER, Commit, LogRef, OperatorState, Report, RunRef, SnapshotRef
from midstream.epoch.attempt import Outcome
from midstream.epoch.beginning import Beginning
from midstream.epoch.publication import delivered, targets_of
from midstream.operators.resolved import Resolved
from midstream.operators.watermarks import regimes_of
from midstream.plan import plan as p
from midstream.plan.window_regimes import without_past
from midstream.state.backlog import left_over


def next_record(beginning: Beginning, offsets: tuple[str, ...], outcome: Outcome, lost: Collection[str] = ()) -> Commit:
    """Write the record of an epoch; state of operators that the plan no longer has is kept unless it is forgotten.

    Args:
        beginning: what the epoch began with.
        offsets: of the sources, at its end.
        outcome: what its run has left.
        lost: sinks whose former rows are gone: the record forgets them.
    """
    id = f"{secrets.randbits(63):016x}"  # a positive number everywhere
    last, intent = beginning.last, beginning.intent
    targets = targets_of(beginning.resolved.plan)
    return Commit(
        epoch=intent.epoch,
        id=id,
        parent=last.id if last is not None else "",
        version=intent.version,
        clock=intent.clock,
        offsets=offsets,
        operators=_operators(beginning, outcome, id),
        sinks=tuple(replace(staged, commit=id, target=targets[staged.sink]) for staged in outcome.staged),
        delivered={sink: each for sink, each in delivered(last, targets).items() if sink not in lost},
        event_times=_event_times(last, outcome),
        seen=_seen(beginning, outcome),
        final=beginning.final,
    )


def epoch_of(change: tuple[int, str] | None) -> int:
    """Return the epoch of a group's last change."""
    return NEVER if change is None else change[0]


def runs_after(runs: Sequence[RunRef] | None, found: Sequence[tuple[str, Report]]) -> tuple[RunRef, ...] | None:
    """Put the runs of an epoch before those of the epochs before, in the place of those that are merged in them."""
    if all(report.run is None for _, report in found):
        return None if runs is None else tuple(runs)
    new, left = [], dict[int, int]()  # group -> how many of its newest runs are replaced
    for path, report in found:
        left |= {group: count for group, _, count in report.run or ()}
        if kept := tuple((group, entries) for group, entries, _ in report.run or () if entries):
            new.append(RunRef(path, kept))
    for run in runs or ():
        stays = []
        for group, entries in run.groups:
            if left.get(group, 0):
                left[group] -= 1
            else:
                stays.append((group, entries))
        if stays:
            new.append(RunRef(run.path, tuple(stays)))
    return tuple(new)


def _event_times(last: Commit | None, outcome: Outcome) -> dict[str, int]:
    """The greatest event time that each watermark operator has ever seen."""
    times = dict(last.event_times) if last is not None else {}
    for name, seen in outcome.event_times.items():
        times[name] = max(times.get(name, seen), seen)
    return times


def _seen(beginning: Beginning, outcome: Outcome) -> dict[str, int]:
    """The clock when each watermark operator last had rows."""
    before = beginning.last.seen if beginning.last is not None else {}
    clock = beginning.intent.clock
    return {
        watermark.id: clock if watermark.id in outcome.event_times else before.get(watermark.id, clock)
        for watermark in beginning.resolved.plan.of(p.Watermark)
    }


def _operators(beginning: Beginning, outcome: Outcome, id: str) -> dict[str, OperatorState]:
    """The state of all operators, of those that ran with what their slots report."""
    operators = {name: msgspec.structs.replace(state, logs=()) for name, state in beginning.states().items()}
    for name, found in outcome.reports.items():
        after = _advanced(beginning, name, [report for _, report in found])
        after = _with_groups(after, found, (beginning.intent.epoch, id), beginning.groups)
        operators[name] = _with_regimes(after, beginning.resolved, name, beginning.state(name))
    return operators


def _advanced(beginning: Beginning, name: str, reports: Sequence[Report]) -> OperatorState:
    """What holds for all groups of an operator: how far time has come, what waits, how its state is stored."""
    state, keyed, last = beginning.state(name), beginning.resolved.keyed[name], beginning.last
    caught_up = {group for report in reports for group in report.caught_up}
    aside = (report.deferred for report in reports if report.deferred is not None)
    backlog = (*left_over(state.backlog, caught_up), *aside)
    known = last.event_times if last is not None else {}
    marks = [state.watermark, *(report.watermark for report in reports if not beginning.final)]
    return msgspec.structs.replace(
        state,
        backlog=backlog,
        hold=(state.hold if state.backlog else known) if backlog else {},
        layouts={**state.layouts, keyed.base: keyed.layout},
        top=max(state.top, keyed.top),
        watermark=_greatest(marks),
        latest=_greatest([state.latest, *(report.latest for report in reports)]),
    )


def _greatest(times: Sequence[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _with_groups(
    state: OperatorState, found: Sequence[tuple[str, Report]], change: tuple[int, str], groups: int
) -> OperatorState:
    """Note what has become of each group: its changes and their logs, its newest snapshot, its next deadlines."""
    changed = list(state.changed or (None,) * groups)
    snapshots = list(state.snapshots or (None,) * groups)
    deadlines = dict(state.deadlines)
    logs = []
    for path, report in found:
        if report.groups:
            size = sum(changes for _, changes in report.groups)
            links = tuple((group, changes, epoch_of(changed[group])) for group, changes in report.groups)
            logs.append(LogRef(report.slot, path, size, links))
        for group, _ in report.groups:
            changed[group] = change
        for group, at, commit, stored, size, checksum in report.snapshots:
            snapshots[group] = SnapshotRef(at, commit, stored, size, checksum)
        for group, (event, clock) in report.deadlines.items():
            deadlines.pop(group, None)
            if event is not None or clock is not None:
                deadlines[group] = (event, clock)
    return msgspec.structs.replace(
        state,
        logs=tuple(logs),
        changed=tuple(changed),
        snapshots=tuple(snapshots),
        runs=runs_after(state.runs, found),
        deadlines=deadlines,
    )


def _with_regimes(after: OperatorState, resolved: Resolved, id: str, before: OperatorState) -> OperatorState:
    """Note the regimes of windows that an epoch ran under, but for those that are past for all groups."""
    windows, regimes = p.windows_of(resolved.plan, id), regimes_of(resolved, id, before)
    if windows is not None and after.watermark is not None and not after.backlog:
        regimes = without_past(regimes, after.watermark - windows.lateness)
    return msgspec.structs.replace(after, regimes=regimes)
