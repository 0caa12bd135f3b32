"""The report of a committed epoch: what its slots said, summed up for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from midstream.checkpoint.records import Commit, Report
from midstream.epoch.attempt import Outcome
from midstream.events import HotKey, Progress
from midstream.operators.kinds import kind_of
from midstream.plan import plan as p
from midstream.state.values import moment_of


def progress_of(
    commit: Commit,
    outcome: Outcome,
    plan: p.Plan,
    times: dict[str, float],
    log_bytes: int,
    moving: dict[str, int],
    sizes: Mapping[str, Mapping[int, tuple[int, int]]],
) -> Progress:
    """Sum up an epoch; of every part of a slot's task the slowest slot counts."""
    reports = {id: [report for _, report in found] for id, found in outcome.reports.items()}

    def total(count: Callable[[Report], int]) -> dict[str, int]:
        return {id: sum(map(count, found)) for id, found in reports.items()}

    late, errors = total(lambda report: report.late), total(lambda report: report.errors)
    return Progress(
        epoch=commit.epoch,
        version=commit.version,
        clock=moment_of(commit.clock).isoformat(),
        rows=total(lambda report: report.rows),
        keys=total(lambda report: report.keys),
        watermarks=_watermarks(commit, plan),
        log_bytes=log_bytes,
        snapshots=sum(total(lambda report: len(report.snapshots)).values()),
        accessed=total(lambda report: report.accessed),
        restored=total(lambda report: report.restored),
        copied=total(lambda report: report.copied),
        moving=moving,
        entries={id: sum(entries for entries, _ in found.values()) for id, found in sizes.items()},
        state_bytes={id: sum(size for _, size in found.values()) for id, found in sizes.items()},
        late={id: n for id, n in late.items() if kind_of(plan[id]).counts_late} | outcome.late,
        errors={id: n for id, n in errors.items() if plan[id].gives_errors} | outcome.errors,
        hottest=_hottest(reports),
        durations={**times, **_slowest(reports)},
    )


def _watermarks(commit: Commit, plan: p.Plan) -> dict[str, str | None]:
    return {
        watermark.id: moment_of(commit.event_times[watermark.id] - watermark.delay).isoformat()
        for watermark in plan.of(p.Watermark)
        if watermark.id in commit.event_times
    }


def _hottest(reports: Mapping[str, Sequence[Report]]) -> dict[str, HotKey]:
    found = {}
    for id, of_slots in reports.items():
        most, key = max((report.hottest for report in of_slots), default=(0, ""))
        if most:
            found[id] = HotKey(key, most, most / max(sum(report.rows for report in of_slots), most))
    return found


def _slowest(reports: dict[str, list[Report]]) -> dict[str, float]:
    slowest: dict[str, float] = {}
    for found in reports.values():
        for report in found:
            for part, seconds in report.times.items():
                slowest[f"slot.{part}"] = max(slowest.get(f"slot.{part}", 0.0), seconds)
    return slowest
