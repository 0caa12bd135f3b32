"""The job of the fault tests: a function with every kind of state, an aggregate, two sinks; and a driver to kill.

`doomed` is a driver that goes no further than a point that it is told, see `killing`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import After, Before, Event, Staged, Step
from tests.faults.killing import Arrive

SCHEMA = "k long, name string, v long, d double, ts timestamp"
EPOCHS, ROWS, KEYS = 4, 60, 9
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rows(epoch: int, size: int = ROWS, keys: int = KEYS) -> list[tuple[Any, ...]]:
    """Rows of an epoch: repeated keys, event times out of order, no two alike."""
    return [
        (
            n * 7 % keys,
            f"n{n * 5 % 4}",
            n * 31 % 97,
            n / 7,
            START + timedelta(seconds=epoch * 10 + n * 13 % 11),
        )
        for n in range(epoch * size, epoch * size + size)
    ]


class Everything(ms.KeyedFunction):
    """Uses a value, a list, a map, both kinds of timers and the epoch's randomness."""

    total = ms.value("long", default=0)
    names = ms.map("string", "long")
    recent = ms.list("double")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.total += row.v
            self.names[row.name] = self.names.get(row.name, 0) + 1
            self.recent.append(row.d)
        if len(self.recent) > 12:
            self.recent = list(self.recent)[-5:]
        ctx.set_event_timer(rows[-1].ts + timedelta(seconds=4))
        ctx.set_processing_timer(ctx.now + timedelta(seconds=2))
        yield key, "rows", self.total, sorted(self.names), list(self.recent)

    def on_timer(self, key: Any, timer: ms.Timer, ctx: ms.Context) -> Any:
        self.names.pop("n1", None)
        yield key, timer.kind, self.total, sorted(self.names), []


def flow(
    spark: SparkSession, root: str, epochs: int = EPOCHS, input: str = "", files: Sequence[Sequence[Any]] | None = None
) -> ms.Flow:
    """Build the job over the files of the input, one an epoch."""
    files = files or [rows(epoch) for epoch in range(epochs)]
    frame = testing.source(spark, input or f"{root}/input", SCHEMA, files)
    built = ms.Flow("faults")
    bids = built.source("bids", frame).with_watermark("ts", "2 seconds")
    made = bids.key_by("k").process(
        "everything",
        Everything(),
        schema="k long, what string, total long, names array<string>, recent array<double>",
    )
    made.sink("rows_out", ms.sinks.files(f"{root}/rows"))
    sums = bids.key_by("name", "k").aggregate("sums", n=ms.count(), d=ms.sum("d"), top=ms.max("v"), late=ms.last("v"))
    sums.sink("sums_out", ms.sinks.files(f"{root}/sums"))
    return built


def start(
    spark: SparkSession,
    root: str,
    *,
    epochs: int = EPOCHS,
    files: Sequence[Sequence[Any]] | None = None,
    **options: Any,
) -> ms.Job:
    """Start the job, or go on with it."""
    clock = options.pop("clock", None) or Clock(root)
    return flow(spark, root, epochs, files=files).start(
        f"{root}/checkpoint",
        trigger=ms.available_now(),
        clock=clock,
        cache=f"{root}/cache",
        groups=16,
        **options,
    )


class Clock:
    """A second per epoch, whatever the number of restarts."""

    def __init__(self, root: str) -> None:
        self._commits = f"{root}/checkpoint/commits"

    def __call__(self) -> int:
        done = len(os.listdir(self._commits)) if os.path.isdir(self._commits) else 0
        return 1_767_225_600_000_000 + done * 1_000_000


def outcome_of_sinks(root: str) -> dict[str, Counter[str]]:
    """The rows of both sinks."""
    found = {}
    for name in ("rows", "sums"):
        table = ds.dataset(f"{root}/{name}", format="parquet", partitioning="hive").to_table()
        found[name] = Counter(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


def outcome(job: ms.Job, root: str, into: str = "savepoint") -> dict[str, Counter[str]]:
    """Everything that must not depend on faults: the rows of both sinks, and the whole state."""
    found = outcome_of_sinks(root)
    job.savepoint(f"{root}/{into}")
    for operator in ("everything", "sums"):
        for table in sorted(os.listdir(f"{root}/{into}/state/{operator}")):
            content = ds.dataset(f"{root}/{into}/state/{operator}/{table}", format="parquet").to_table().to_pylist()
            found[f"{operator}/{table}"] = Counter(json.dumps(r, default=str, sort_keys=True) for r in content)
    return found


def doomed(spark: SparkSession, root: str, parameters: list[str], arrive: Arrive) -> None:
    """Run the job to a point: event, step or sink, epoch."""
    kind, what, epoch = parameters[0], parameters[1], int(parameters[2])

    def listen(event: Event) -> None:
        if isinstance(event, Staged):
            here = kind == "staged" and event.sink == what and event.epoch == epoch
        elif isinstance(event, (Before, After)):
            here = kind == type(event).__name__.lower() and event.step is Step(what) and event.epoch == epoch
        else:
            return
        if here:
            arrive(" ".join(parameters))

    start(spark, root, listener=listen).await_termination()
