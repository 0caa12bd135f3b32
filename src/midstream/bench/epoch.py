"""The floor of an epoch, and how its time grows with the state."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

import midstream as ms
from midstream.bench import machine
from midstream.bench.contestants import Trial, aggregate, declared, saved_sums
from midstream.bench.oracle import ResultError, check
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rows import Rows, sums
from midstream.bench.running import TIMED_REGION, run_batches, run_flow, steady
from midstream.bench.workbench import Workbench, workbench
from midstream.spark.session import FILE_MANAGER, PLAIN_FILES

Echo = Callable[[str], object]
FLOOR_KEYS = 1_000_000
PRELOAD_ROWS = 1_000_000  # per epoch


def run(
    rows: int = 1_000,
    epochs: int = 40,
    sizes: Sequence[int] = (100_000, 1_000_000, 10_000_000),
    json: str | os.PathLike[str] | None = None,
    echo: Echo = print,
    *,
    growth_rows: int = 20_000,
    rounds: int = 3,
) -> dict[str, Any]:
    """Measure small epochs against empty ones, and epochs over ever larger states; return the record.

    Promised: every result is compared with one computed separately, and no figure is printed or written unless all
    agree (`ResultError`).
    Not promised: figures of a machine that does something else meanwhile. Compare ratios within one record.

    Args:
        rows: rows per epoch for the floor.
        epochs: timed epochs per run; the first third of them is warm-up.
        sizes: numbers of keys to grow the state to, each in a job of its own; ratios are to the smallest.
        json: file for the record.
        echo: takes the text to print.
        growth_rows: rows per epoch over a grown state, with keys drawn from all of it.
        rounds: how many times the floor is measured, in rotated order.
    """
    at_least_one(rows=rows, epochs=epochs, growth_rows=growth_rows, rounds=rounds)
    for size in sizes:
        at_least_one(sizes=size)
    with workbench() as bench:
        floor = _floor(bench, rows, epochs, rounds, echo)
        growth = []
        for size in sizes:
            echo(f"growth: {size:,} keys")
            growth.append(_grown(bench, size, growth_rows, epochs))
        about = machine.describe(bench.spark)
    _relate(growth)
    record = {
        "checked": True,
        "epochs": epochs,
        "floor": floor,
        "growth": {"rows": growth_rows, "results": growth},
        "machine": about,
        "timed_region": TIMED_REGION,
    }
    notes = ["All results agree with batch queries over the same rows.", f"Timed: {TIMED_REGION}."]
    echo(rendered(_floor_table(floor)))
    echo(rendered(_growth_table(growth, growth_rows), *notes))
    if json is not None:
        save(record, json)
    return record


# --- the floor ----------------------------------------------------------------------------------------------


def _floor(bench: Workbench, rows: int, epochs: int, rounds: int, echo: Echo) -> dict[str, Any]:
    contestants = {"empty": _empty, "empty, files as ours": _nearly_empty, "aggregate": _aggregate}
    runs: dict[str, list[float]] = {name: [] for name in contestants}  # median epoch of each round
    for number in range(rounds):
        order = list(contestants) if number % 2 == 0 else list(reversed(contestants))
        for name in order:
            echo(f"floor, round {number + 1} of {rounds}: {name}")
            with bench.scratch(name) as directory:
                trial = Trial(bench.spark, Rows(FLOOR_KEYS), rows, epochs, bench.cores, directory)
                runs[name].append(contestants[name](trial))
    ours = median(runs["aggregate"])
    results = [
        {"name": name, "epoch_ms_p50": median(found), "ratio": round(ours / max(median(found), 1), 3), "rounds": found}
        for name, found in runs.items()
    ]
    return {"rows": rows, "results": results, "ratio": results[0]["ratio"]}


def _empty(trial: Trial) -> float:
    """A `foreachBatch` that does nothing: what Spark with its defaults takes for an epoch anyway."""
    trial.spark.conf.unset(FILE_MANAGER)
    try:
        return _nearly_empty(trial)
    finally:
        trial.spark.conf.set(FILE_MANAGER, PLAIN_FILES)


def _nearly_empty(trial: Trial) -> float:
    """The same, with Spark's logs written as those of our queries are."""
    times = run_batches(trial.stream(), _nothing, trial.epochs, trial.path("checkpoint"), afterwards=_nothing)
    return steady(times)


def _nothing(batch: object) -> None:
    return None


def _aggregate(trial: Trial) -> float:
    outcome = aggregate(trial)
    check("aggregate", outcome.results, trial.rows.sums(trial.spark, outcome.first, outcome.end))
    return steady(outcome.times)


# --- the growth ---------------------------------------------------------------------------------------------


def _grown(bench: Workbench, size: int, rows: int, epochs: int) -> dict[str, Any]:
    """Fill a state with `size` keys in large epochs, then measure small ones.

    Every epoch is a file: first files with each key once, then files with keys at random.
    """
    spark = bench.spark
    with bench.scratch("growth") as directory:
        source = os.path.join(directory, "rows")
        preload = _write_files(source, size, rows, epochs)
        files = spark.readStream.schema("key long, price long").option("maxFilesPerTrigger", 1)
        flow = ms.Flow("bench")
        declared(flow.source("rows", files.parquet(source))).sink("out", ms.sinks.noop())
        run = run_flow(flow, preload + epochs, directory)
        found = saved_sums(spark, run.savepoint)
        if (keys := found.count()) != size:
            raise ResultError(f"the state has {keys:,} keys instead of {size:,}, so no time is printed")
        check(f"growth to {size:,} keys", found, sums(spark.read.parquet(source)))
        times = run.times[preload:]
        return {
            "keys": size,
            "epoch_ms_p50": steady(times),
            "batch_ms_p50": steady(times, "addBatch"),  # without Spark's own offset and commit files
            "epochs_ms": [one["triggerExecution"] for one in times],
        }


def _write_files(directory: str, size: int, rows: int, epochs: int) -> int:
    """Write one Parquet file per epoch, and return the number of those that fill the state."""
    os.makedirs(directory)
    random = np.random.default_rng(size)
    fill = [np.arange(first, min(first + PRELOAD_ROWS, size)) for first in range(0, size, PRELOAD_ROWS)]
    batches = [*fill, *(random.integers(0, size, rows) for _ in range(epochs))]
    now = time.time()
    for number, keys in enumerate(batches):
        path = os.path.join(directory, f"{number:06}.parquet")
        pq.write_table(pa.table({"key": keys, "price": 1 + keys % 1000}), path)
        os.utime(path, (now, now - len(batches) + number))  # Spark reads files in the order of their times
    return len(fill)


def _relate(growth: list[dict[str, Any]]) -> None:
    """Add to each result how it compares to that of the smallest state."""
    base = min(growth, key=lambda result: result["keys"], default=None)
    for result in growth:
        assert base is not None
        result["ratio"] = round(result["epoch_ms_p50"] / max(base["epoch_ms_p50"], 1), 3)


# --- the tables ---------------------------------------------------------------------------------------------


def _floor_table(floor: dict[str, Any]) -> Table:
    table = Table(title=f"the floor: epochs of {floor['rows']:,} rows", title_justify="left")
    table.add_column("")
    table.add_column("epoch p50", justify="right")
    table.add_column("aggregate to it", justify="right")
    for result in floor["results"]:
        table.add_row(result["name"], f"{result['epoch_ms_p50']:,.0f} ms", f"{result['ratio']:.2f}")
    return table


def _growth_table(growth: list[dict[str, Any]], rows: int) -> Table:
    table = Table(title=f"growth: epochs of {rows:,} rows over a state of", title_justify="left")
    for heading in ("keys", "epoch p50", "foreachBatch p50", "ratio"):
        table.add_column(heading, justify="right")
    for result in growth:
        epoch, batch = f"{result['epoch_ms_p50']:,.0f} ms", f"{result['batch_ms_p50']:,.0f} ms"
        table.add_row(f"{result['keys']:,}", epoch, batch, f"{result['ratio']:.2f}")
    return table
