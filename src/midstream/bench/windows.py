"""The cost of a row in windows that overlap: the same rows in windows of one size, which begin ever more often."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from rich.table import Table

import midstream as ms
from midstream.bench import machine
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rows import PRICE, SUMS, Rows
from midstream.bench.running import run_flow
from midstream.bench.throughput import rotated
from midstream.bench.workbench import Workbench, workbench
from midstream.errors import MidstreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIZE = 10_000_000  # of a window, in microseconds
ROWS_PER_WINDOW = 1_000_000
TIMED_REGION = (
    "epochs as Spark reports them (durationMs.triggerExecution), the mean without the first third; closing windows and "
    "writing them as Parquet included. Left out: starting and stopping, the check of the results"
)


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows with an event time: the i-th one a function of i only."""

    keys: int

    def of(self, numbers: DataFrame) -> DataFrame:
        """Return the rows of numbers `value`."""
        time = f"timestamp_micros(value * {SIZE}L div {ROWS_PER_WINDOW}L)"
        return numbers.selectExpr(f"{Rows(self.keys).key} as key", f"{PRICE} as price", f"{time} as ts")


def run(
    keys: int = 1_000,
    rows: int = 500_000,
    overlaps: Sequence[int] = (1, 10, 100),
    epochs: int = 18,
    rounds: int = 2,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure count and sum per key and window; print a table, return the record.

    Promised: every window of every round is compared with a batch query, and no figure is printed unless all agree.
    Not promised: figures of a machine that does something else meanwhile.

    Args:
        keys: number of keys.
        rows: rows per epoch; a window holds a million.
        overlaps: in how many windows a row is; the others are compared with the first.
        epochs: epochs of each run; the first third is warm-up.
        rounds: how often each is measured, each time in another order.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(keys=keys, rows=rows, epochs=epochs, rounds=rounds, **{f"overlap {n}": n for n in overlaps})
    if any(SIZE % overlap for overlap in overlaps):
        raise MidstreamError(f"windows of {SIZE} microseconds cannot begin {overlaps} times in their length evenly")
    costs: dict[int, list[float]] = {overlap: [] for overlap in overlaps}
    names = [str(overlap) for overlap in overlaps]
    with workbench() as bench:
        for number in range(rounds):
            for name in rotated(names, number):
                echo(f"round {number + 1} of {rounds}: each row in {name} windows")
                costs[int(name)].append(_measured(bench, Timed(keys), rows, int(name), epochs))
        about = machine.describe(bench.spark)
    first = median(costs[overlaps[0]])
    results = [
        {"overlap": overlap, "ns_per_row": round(median(found)), "ratio": round(median(found) / first, 2)}
        for overlap, found in costs.items()
    ]
    record = {
        "checked": True, "keys": keys, "rows": rows, "epochs": epochs, "rounds": rounds, "results": results,
        "machine": about, "timed_region": TIMED_REGION,
    }  # fmt: skip
    echo(rendered(_table(record), "All windows agree with a batch query.", f"Timed: {TIMED_REGION}."))
    if json is not None:
        save(record, json)
    return record


def _measured(bench: Workbench, timed: Timed, per_epoch: int, overlap: int, epochs: int) -> float:
    """Run once, check all windows, return nanoseconds per row."""
    with bench.scratch("windows") as directory:
        source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_epoch)
        stream = timed.of(source.option("numPartitions", bench.cores).load())
        flow, out = ms.Flow("windows"), os.path.join(directory, "out")
        windows = ms.sliding(SIZE / 1e6, SIZE / overlap / 1e6) if overlap > 1 else ms.tumbling(SIZE / 1e6)
        keyed = flow.source("rows", stream).with_watermark("ts", 0).key_by("key").window(windows)
        keyed.aggregate("windows", n=ms.count(), total=ms.sum("price")).sink("out", ms.sinks.files(out))
        ran = run_flow(flow, epochs, directory)
        _check(bench, timed, out, SIZE // overlap, per_epoch * (ran.committed - 1))
        kept = ran.times[epochs // 3 :]
        return sum(times["triggerExecution"] for times in kept) * 1e6 / (per_epoch * len(kept))


def _check(bench: Workbench, timed: Timed, out: str, slide: int, rows: int) -> None:
    """Compare the windows that the first rows have closed with a batch query over these."""
    numbers = bench.spark.range(0, rows).selectExpr("id as value")
    panes = timed.of(numbers).selectExpr("key", "price", f"unix_micros(ts) div {slide}L * {slide}L as pane")
    counted = panes.groupBy("key", "pane").agg(*map(F.expr, SUMS))
    latest = (rows - 1) * SIZE // ROWS_PER_WINDOW
    keys, times = bench.spark.range(timed.keys), bench.spark.range(0, latest + 1, slide)
    every = keys.toDF("key").crossJoin(times.toDF("pane")).join(counted, ["key", "pane"], "left")  # also without rows
    over = f"over (partition by key order by pane range between {SIZE - slide} preceding and current row)"
    wanted = every.selectExpr("key", f"pane + {slide} as until", f"sum(n) {over} as n", f"sum(total) {over} as total")
    found = bench.spark.read.parquet(out).selectExpr("key", "unix_micros(window_end) as until", "n", "total")
    one, other = (
        Counter(map(tuple, frame.collect())) for frame in (found, wanted.where(f"until <= {latest} and n > 0"))
    )
    if one != other or not one:
        raise ResultError(
            f"{sum(one.values()):,} windows were emitted, {sum(other.values()):,} were expected; they differ"
        )


def _table(record: dict[str, Any]) -> Table:
    title = f"count and sum in windows of {ROWS_PER_WINDOW:,} rows, {record['keys']:,} keys"
    table = Table(title=title, title_justify="left")
    for heading in ("windows per row", "ns per row", "ratio"):
        table.add_column(heading, justify="right")
    for result in record["results"]:
        table.add_row(f"{result['overlap']:,}", f"{result['ns_per_row']:,}", f"{result['ratio']:.2f}")
    return table
