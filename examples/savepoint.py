"""Write a savepoint, read it as plain Parquet, and start another job from it with another number of key-groups.

It prints:

    the savepoint holds: auction 1 total 45, auction 2 total 20
    128 groups became 16
    epoch 2: auction 2 total 27, auction 3 total 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.spark.session import local_session

LISTS = [[(1, 10), (2, 20), (1, 30)], [(1, 5)], [(2, 7), (3, 1)]]


def start(spark: SparkSession, here: str, name: str, epochs: int, out: ms.sinks.Sink, **options: Any) -> ms.Job:
    """Start the flow over the first lists, under a checkpoint of the given name, and wait for its end."""
    flow = ms.Flow("totals")
    bids = flow.source("bids", testing.source(spark, f"{here}/bids", "auction long, price long", LISTS[:epochs]))
    bids.key_by("auction").aggregate("sums", total=ms.sum("price")).sink("out", out)
    job = flow.start(f"{here}/{name}", trigger=ms.available_now(), cache=f"{here}/cache", **options)
    job.await_termination()
    return job


def shown(rows: Iterable[Mapping[str, Any]]) -> str:
    """Show totals, by auction."""
    return ", ".join(sorted(f"auction {row['auction']} total {row['total']}" for row in rows))


def main(spark: SparkSession) -> None:
    """Run a job, save it, look into the savepoint, and go on from it elsewhere."""
    with tempfile.TemporaryDirectory() as here:
        job = start(spark, here, "first", 2, ms.sinks.memory())
        job.savepoint(f"{here}/saved")
        table = pq.read_table(f"{here}/saved/state/sums/record")  # your columns; DuckDB, pandas, Spark read it too
        print("the savepoint holds:", shown(table.to_pylist()))

        out = ms.sinks.memory()
        start(spark, here, "second", 3, out, savepoint=f"{here}/saved", groups=16)
        print("128 groups became 16")
        for epoch in out.epochs():
            print(f"epoch {epoch}:", shown(row.asDict() for row in out.rows(epoch)))


if __name__ == "__main__":
    main(local_session())
