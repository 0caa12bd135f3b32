"""The report of `midstream bench rescale`: the cost of a move for each contestant, as a record, a table and a curve."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from midstream.bench import chart
from midstream.bench.latency import EpochTimes, latencies, milliseconds, quantiles
from midstream.bench.usage import Usage

_BEFORE = 1.0  # seconds before the move: rows generated in them may wait for it


@dataclass(slots=True)
class MeasuredMove:
    """What one contestant has done."""

    name: str
    epochs: list[EpochTimes]
    steady: tuple[float, float]  # from, to
    move: tuple[float, float]
    groups: int = 0  # that moved
    bytes: int = 0  # that were read from the store for it
    idle: Usage = field(default_factory=Usage)  # of all processes, in the steady stretch
    notes: dict[str, Any] = field(default_factory=dict)


def typical(runs: Sequence[MeasuredMove]) -> MeasuredMove:
    """The median run, by the greatest latency while it moved."""
    return sorted(runs, key=lambda found: _moving(found)["max_ms"])[(len(runs) - 1) // 2]


def _moving(found: MeasuredMove) -> dict[str, float]:
    return quantiles(latencies(found.epochs, found.move[0] - _BEFORE, found.move[1]))


def result(found: MeasuredMove, rate: int, length: int) -> dict[str, Any]:
    """What is recorded of a contestant.

    Args:
        found: what it has done.
        rate: rows per second.
        length: of the steady stretch, in seconds.
    """
    seconds = max(found.move[1] - found.move[0], 1.0)
    begin, end = found.steady[0], found.steady[1] - _BEFORE
    pieces = max(int((end - begin) / seconds), 1)
    piece = min(seconds, end - begin)
    steady = [quantiles(latencies(found.epochs, begin + i * piece, begin + (i + 1) * piece)) for i in range(pieces)]
    moving = _moving(found)
    normal = {name: statistics.median(each[name] for each in steady) for name in steady[0]}
    return {
        "name": found.name,
        "steady": normal,
        "moving": moving,
        "ratio": round(moving["max_ms"] / normal["max_ms"], 2),
        "duration_s": round(found.move[1] - found.move[0], 2),
        "groups": found.groups,
        "mb": round(found.bytes / 1e6, 1),
        "rows_per_s": {
            "steady": round(_throughput(found.epochs, *found.steady)),
            "moving": round(_throughput(found.epochs, found.move[0], found.move[0] + seconds)),
        },
        "idle": found.idle.per_million(rate * length),
        **found.notes,
    }


def _throughput(epochs: Sequence[EpochTimes], begin: float, end: float) -> float:
    """Rows per second of the epochs that ended between two moments."""
    return sum(epoch.rows for epoch in epochs if begin < epoch.end <= end) / (end - begin)


def notes(record: dict[str, Any]) -> Iterator[str]:
    """Notes below the tables."""
    found = {each["name"]: each for each in record["results"]}
    if "restored_mb_per_s" in found.get("all_at_once", {}):
        speed, plain = found["all_at_once"]["restored_mb_per_s"], found["all_at_once"]["copy_mb_per_s"]
        yield f"all_at_once restored {speed:,} MB/s; a plain copy of such files beside the job makes {plain:,} MB/s."
    if "cut_epoch_s" in found.get("restart", {}):
        whole = found["restart"]["cut_epoch_s"]
        first = statistics.median(each["first_epoch_s"] for each in found.values() if "first_epoch_s" in each)
        yield (
            f"With all copies lost the next epoch took {first:.2f} s, the median of all strategies; one that reads all "
            f"state first, {whole:.2f} s."
        )


def course(found: MeasuredMove) -> chart.Course:
    """The latency over time, with the move at 0."""
    at = found.move[0]
    points = [(epoch.begin - at, milliseconds(epoch.end - before.begin)) for before, epoch in zip(
        found.epochs, found.epochs[1:], strict=False)]  # fmt: skip
    begin = found.steady[0] - at
    return chart.Course([point for point in points if point[0] > begin], found.move[1] - at)


def latency_table(record: dict[str, Any]) -> Table:
    """Latencies of rows, contestant by contestant."""
    title = f"latency in ms while {record['state_mb']} MB of state go from 2 to 3 executors, {record['rate']:,} rows/s"
    shown = Table(title=title, title_justify="left")
    shown.add_column(no_wrap=True)
    for heading in ("p50\nsteady", "\nmoving", "p99\nsteady", "\nmoving", "max\nsteady", "\nmoving", "\nratio"):
        shown.add_column(heading, justify="right")
    for each in record["results"]:
        cells = [
            f"{each[when][quantile]:,.0f}"
            for quantile in ("p50_ms", "p99_ms", "max_ms")
            for when in ("steady", "moving")
        ]
        shown.add_row(each["name"], *cells, f"{each['ratio']:.2f}")
    return shown


def cost_table(record: dict[str, Any]) -> Table:
    """Other costs, contestant by contestant."""
    shown = Table()
    shown.add_column(no_wrap=True)
    for heading in ("\ntook", "MB\nmoved", "rows/s\nsteady", "\nmoving", "idle\nCPU", "after\na loss"):
        shown.add_column(heading, justify="right")
    for each in record["results"]:
        shown.add_row(
            each["name"],
            f"{each['duration_s']:.1f} s",
            f"{each['mb']:,.0f}",
            *(f"{each['rows_per_s'][when]:,}" for when in ("steady", "moving")),
            f"{each['idle']['cpu_s_per_million']:,.0f} s",
            f"{each['first_epoch_s']:.2f} s" if "first_epoch_s" in each else "",
        )
    shown.caption = (
        "idle CPU: seconds per million rows, all processes, when nothing moves; falls as Java warms up\n"
        "after a loss: the next epoch, when all copies have been deleted"
    )
    shown.caption_justify = "left"
    return shown
