"""A job on a real cluster of two workers: one is killed in the middle of an epoch, another one comes."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint.layout import commit_file, home_of, log_directory
from midstream.events import After, Event, Progress, Step
from midstream.testing import Cluster, source

EPOCHS = 6
SCHEMA = "k long, v long"


def rows(epoch: int) -> list[tuple[int, int]]:
    """Make the rows of an epoch."""
    return [(i % 97, i + epoch) for i in range(400)]


class Latest(ms.KeyedFunction):
    """Keeps a sum, the newest values, and how often each was seen."""

    total = ms.value("long", default=0)
    newest = ms.list("long")
    seen = ms.map("long", "long")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        """Take in rows."""
        for row in rows:
            self.total += row.v
            self.seen[row.v % 3] = self.seen.get(row.v % 3, 0) + 1
        self.newest = [*list(self.newest)[-2:], max(row.v for row in rows)]
        yield key, self.total, sum(self.newest), sum(self.seen.values())


def run(spark: SparkSession, workers: Cluster, root: str, standbys: int) -> dict[str, Any]:
    """Run to the end of the input; say what was killed when, what was restored, and which caches there are.

    Other executors keep as many second copies of its state as `standbys` says.
    """
    flow = ms.Flow("clustered")
    stream = flow.source("rows", source(spark, f"{root}/input", SCHEMA, [rows(epoch) for epoch in range(EPOCHS)]))
    stream.key_by("k").aggregate("sums", slots=2, total=ms.sum("v"), n=ms.count()).sink(
        "sums_out", ms.sinks.files(f"{root}/sums", format="json")
    )
    latest = stream.key_by("k").process("latest", Latest(), schema="k long, t long, s long, n long", slots=2)
    latest.sink("latest_out", ms.sinks.files(f"{root}/latest", format="json"))

    told: dict[str, Any] = {"restored": 0, "standing": []}
    log, commit = f"{root}/checkpoint/{log_directory(home_of('latest', 0), 3)}", f"{root}/checkpoint/{commit_file(3)}"

    def kill() -> None:
        """Kill a worker once one task of the epoch has written its log."""
        while not any(files for _, _, files in os.walk(log)):
            time.sleep(0.001)
        workers.kill_worker(0)
        told["in mid-epoch"] = not os.path.exists(commit)
        while not os.path.exists(commit):  # else Spark might run what was lost on the new one, which has no copies
            time.sleep(0.001)
        workers.add_worker()

    killer = threading.Thread(target=kill)

    def listen(event: Event) -> None:
        if event == After(Step.JOURNAL, 3):
            told["standing"] = [slot.standbys for slot in job.slots]
            killer.start()
        if isinstance(event, Progress) and event.epoch >= 3:
            told["restored"] += sum(event.restored.values())

    options: dict[str, Any] = {"groups": 16, "standbys": standbys, "listener": listen}
    job = flow.start(f"{root}/checkpoint", trigger=ms.available_now(), **options)
    job.await_termination()
    killer.join()
    told["caches"] = sorted(
        os.path.relpath(path, workers.directory)
        for path, directories, _ in os.walk(workers.directory)
        if os.path.basename(path) == job.id and directories
    )
    told["workers"] = workers.workers
    return told
