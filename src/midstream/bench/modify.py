"""The latency of rows around a live change, against the steady state and against stop, change, restart.

The same count per key, under a constant load of rows that carry the time of their creation. A row's latency is the time
from then to the end of the epoch that has it, as Spark reports the epoch.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

import midstream as ms
from midstream.bench import machine
from midstream.bench.contestants import declared, saved_sums
from midstream.bench.latency import EpochTimes, epochs_of, latencies, milliseconds, quantiles, stay
from midstream.bench.oracle import check_whole
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.workbench import Workbench, quiet, workbench
from midstream.modifications.changes import Change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATENCY = (
    "the latency of a row is the time from its creation to the end of its epoch, as Spark reports it; rows come at "
    "a constant rate, and the steady state is the stretch of the same length before the change"
)


def run(
    rate: int = 20_000,
    keys: int = 100_000,
    seconds: int = 20,
    rounds: int = 3,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure replace, insert and remove on a running job, and Spark's restart; print a table and return the record.

    Promised: no figure unless every row was counted once. Not promised: figures of a machine that does
    something else meanwhile.

    Args:
        rate: rows per second.
        keys: number of keys.
        seconds: length of the stretch around each change, and of the steady one before.
        rounds: how often each change is made.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(rate=rate, keys=keys, seconds=seconds, rounds=rounds)
    with workbench() as bench:
        echo(f"midstream: replace, insert, remove, {rounds} times")
        results = _ours(bench, rate, keys, seconds, rounds)
        echo(f"spark: stop, change, restart, {rounds} times")
        results.append(_sparks(bench, rate, keys, seconds, rounds))
        about = machine.describe(bench.spark)
    record = {
        "checked": True, "rate": rate, "keys": keys, "seconds": seconds, "rounds": rounds, "results": results,
        "machine": about,
    }  # fmt: skip
    latency = f"{LATENCY[0].upper()}{LATENCY[1:]}."
    echo(rendered(_table(record), latency, *_cuts(results), "Every row was counted exactly once."))
    if json is not None:
        save(record, json)
    return record


def _stream(spark: SparkSession, rate: int, keys: int) -> DataFrame:
    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 2).load()
    return rows.selectExpr(f"pmod(xxhash64(value), {keys}L) as key", "1 + value % 1000 as price")


def _above(limit: int) -> Callable[[DataFrame], DataFrame]:
    """A filter that lets all rows pass: the changes do not change the result."""
    return lambda df: df.where(f"price > {limit}")


def _ours(bench: Workbench, rate: int, keys: int, seconds: int, rounds: int) -> list[dict[str, Any]]:
    changes: dict[str, Callable[[], Change]] = {
        "replace": lambda: ms.replace("all", _above(next(limits))),
        "insert": lambda: ms.insert("more", _above(-2), after="all"),
        "remove": lambda: ms.remove("more"),
    }
    limits = itertools.count(-3, -1)
    marks: dict[str, list[tuple[float, ms.Modification]]] = {name: [] for name in changes}
    with bench.scratch("modify") as directory:
        flow = ms.Flow("bench")
        rows = flow.source("rows", _stream(bench.spark, rate, keys)).transform("all", _above(0))
        declared(rows).sink("out", ms.sinks.noop())
        job = flow.start(f"{directory}/checkpoint", trigger=ms.every(0), cache=f"{directory}/cache")
        assert job.query is not None
        with job:
            stay(seconds)  # warm-up
            for _ in range(rounds):
                for name, make in changes.items():
                    stay(seconds)
                    marks[name].append((time.time(), job.modify(make()).wait(60)))
                    stay(seconds)
            epochs = epochs_of(job.query)
        check_whole(saved_sums(bench.spark, job.savepoint(f"{directory}/savepoint")), rate, "seconds")
    slowest = [
        max(epoch.seconds for epoch in epochs if at - 1.5 * seconds <= epoch.begin < at - seconds / 2)
        for found in marks.values()
        for at, _ in found
    ]
    return [
        {
            "name": f"midstream {name}",
            **_compared(epochs, [at for at, _ in found], seconds),
            "cut_ms": [milliseconds(_cut(epochs, change).seconds) for _, change in found],
            "slowest_steady_ms": [milliseconds(each) for each in slowest],
            "epochs_to_cut": [_epochs_until(epochs, at, change) for at, change in found],
            "phases": [change.durations for _, change in found],
        }
        for name, found in marks.items()
    ]


def _cut(epochs: Sequence[EpochTimes], change: ms.Modification) -> EpochTimes:
    assert change.cut is not None
    return next(epoch for epoch in epochs if change.cut.epoch == epoch.number)


def _epochs_until(epochs: Sequence[EpochTimes], at: float, change: ms.Modification) -> int:
    """How many epochs begin after the change was asked for, up to the first under the new plan, without the dry run."""
    tried = at + sum(change.durations.get(phase, 0.0) for phase in ("Validated", "Prepared"))
    return sum(epoch.begin >= tried and epoch.number <= _cut(epochs, change).number for epoch in epochs)


def _sparks(bench: Workbench, rate: int, keys: int, seconds: int, rounds: int) -> dict[str, Any]:
    with bench.scratch("restart") as directory:

        def start(limit: int) -> StreamingQuery:
            rows = _above(limit)(_stream(bench.spark, rate, keys))
            counts = rows.groupBy("key").count().writeStream.format("noop").outputMode("update")
            counts = counts.option("checkpointLocation", f"{directory}/checkpoint")
            return counts.trigger(processingTime="0 seconds").start()

        query, epochs, marks = start(0), [], []
        stay(seconds)
        for number in range(rounds):
            stay(seconds)
            marks.append(time.time())
            with quiet(bench.spark):
                query.stop()
            epochs += epochs_of(query)
            query = start(-1 - number)
            stay(seconds)
        epochs += epochs_of(query)
        with quiet(bench.spark):
            query.stop()
        return {"name": "spark restart", **_compared(epochs, marks, seconds)}


def _compared(epochs: Sequence[EpochTimes], marks: Sequence[float], seconds: float) -> dict[str, Any]:
    steady = [quantiles(latencies(epochs, at - 1.5 * seconds, at - seconds / 2)) for at in marks]
    around = [quantiles(latencies(epochs, at - seconds / 2, at + seconds / 2)) for at in marks]
    return {"steady": _medians(steady), "around": _medians(around)}


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds)) for name in rounds[0]}


def _cuts(results: Sequence[dict[str, Any]]) -> list[str]:
    """Say how long the epochs of the cuts took, against the slowest epochs of steady stretches."""
    lines = []
    for result in results:
        if "cut_ms" in result:
            cut, slowest = statistics.median(result["cut_ms"]), statistics.median(result["slowest_steady_ms"])
            lines.append(
                f"{result['name']}: the epoch of the cut took {cut:,.0f} ms (median), {cut / slowest:.2f} of the "
                f"slowest epoch of a steady stretch (median {slowest:,.0f} ms); it was epoch "
                f"{max(result['epochs_to_cut'])} after the dry run, at most."
            )
    return lines


def _table(record: dict[str, Any]) -> Table:
    title = f"latency in the {record['seconds']} s around a change, {record['rate']:,} rows/s, {record['keys']:,} keys"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for heading in ("p50", "p99", "max"):
        table.add_column(f"{heading}, steady", justify="right")
        table.add_column("around", justify="right")
    for result in record["results"]:
        cells = []
        for quantile in ("p50_ms", "p99_ms", "max_ms"):
            cells += [f"{result['steady'][quantile]:,} ms", f"{result['around'][quantile]:,} ms"]
        table.add_row(result["name"], *cells)
    return table
