"""The job of the fault tests: a function with every kind of state, an aggregate, two sinks; and a driver to kill.

`doomed` is a driver that goes no further than a point that it is told, see `killing`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint.storage import Storage, file_system
from midstream.events import After, Before, Event, Staged, Step
from tests.faults.killing import Arrive

SCHEMA = "k long, name string, v long, d double, ts timestamp"
EPOCHS, ROWS, KEYS = 4, 60, 9
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def durable(root: str) -> str:
    """Give where checkpoint, sinks and savepoints of a job are: in its directory, or where a file there says."""
    told = Path(root, "durable")
    return told.read_text() if told.exists() else root


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
    made.sink("rows_out", ms.sinks.files(f"{durable(root)}/rows"))
    sums = bids.key_by("name", "k").aggregate("sums", n=ms.count(), d=ms.sum("d"), top=ms.max("v"), late=ms.last("v"))
    sums.sink("sums_out", ms.sinks.files(f"{durable(root)}/sums"))
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
        f"{durable(root)}/checkpoint",
        trigger=ms.available_now(),
        clock=clock,
        cache=f"{root}/cache",
        groups=16,
        **options,
    )


class Clock:
    """A second per epoch, whatever the number of restarts."""

    def __init__(self, root: str) -> None:
        self._checkpoint = Storage.at(f"{durable(root)}/checkpoint")

    def __call__(self) -> int:
        done = len(self._checkpoint.list("commits"))
        return 1_767_225_600_000_000 + done * 1_000_000


def outcome_of_sinks(root: str) -> dict[str, Counter[str]]:
    """The rows of both sinks."""
    found = {}
    for name in ("rows", "sums"):
        found[name] = _counted(f"{durable(root)}/{name}")
    return found


def outcome(job: ms.Job, root: str, into: str = "savepoint") -> dict[str, Counter[str]]:
    """Everything that must not depend on faults: the rows of both sinks, and the whole state."""
    found = outcome_of_sinks(root)
    saved = Storage.at(job.savepoint(f"{durable(root)}/{into}"))
    for operator in ("everything", "sums"):
        for table in saved.list(f"state/{operator}"):
            found[f"{operator}/{table}"] = _counted(saved.path("state", operator, table))
    return found


def _counted(directory: str) -> Counter[str]:
    """Count the rows of the Parquet files below a directory."""
    fs, path = file_system(directory) if "://" in directory else (pafs.LocalFileSystem(), directory)
    table = ds.dataset(path, filesystem=fs, format="parquet", partitioning="hive").to_table()
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def doomed(spark: SparkSession, root: str, parameters: list[str], arrive: Arrive) -> None:
    """Run the job to a point: event, step or sink, epoch, and perhaps a store."""
    kind, what, epoch = parameters[0], parameters[1], int(parameters[2])
    options = {"store": parameters[3]} if len(parameters) > 3 else {}

    def listen(event: Event) -> None:
        if isinstance(event, Staged):
            here = kind == "staged" and event.sink == what and event.epoch == epoch
        elif isinstance(event, (Before, After)):
            here = kind == type(event).__name__.lower() and event.step is Step(what) and event.epoch == epoch
        else:
            return
        if here:
            arrive(" ".join(parameters))

    start(spark, root, listener=listen, **options).await_termination()
