"""Bad code never stops a job: it is rejected by its schema or in the dry run, or rolled back in its first epoch.

It prints:

    Rejected: transform 'cheap' fails on a stream of struct<auction:bigint,price:d
    Rejected: the job's own code failed: ZeroDivisionError: integer division or mo
    RolledBack: the job's own code failed: ValueError: auction 13 is unlucky
    the job goes on: [(13, 3.0)]
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live

SCHEMA = "auction long, price double"


def divides(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails on every row."""
    for batch in batches:
        yield batch.slice(0, len(batch) // 0)


def unlucky(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails on rows that the dry run did not have."""
    for batch in batches:
        if 13 in batch.column("auction").to_pylist():
            raise ValueError("auction 13 is unlucky")
        yield batch


def main(spark: SparkSession) -> None:
    """Try three bad modifications on a running job."""
    out = ms.sinks.memory()

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.transform("cheap", lambda df: df.where("price < 100")).sink("out", out)

    with Live(spark, build, trigger=ms.every("6 seconds"), bids=SCHEMA) as live:
        live.feed("bids", [(1, 10.0), (2, 30.0)])
        live.job.modify(ms.replace("cheap", lambda df: df.where("cost < 100"))).reached(ms.Phase.ARMED)
        live.job.modify(ms.replace("cheap", ms.map_arrow(divides, schema=SCHEMA))).reached(ms.Phase.ARMED)
        live.next_epoch()  # so that the row that is unlucky comes in the first epoch of the new code
        live.job.modify(ms.replace("cheap", ms.map_arrow(unlucky, schema=SCHEMA))).reached(ms.Phase.ARMED)
        live.feed("bids", [(13, 3.0)])
        for bad in live.job.modifications:
            print(f"{bad.phase.value}: {bad.error[:68].splitlines()[0]}")
        print("the job goes on:", [tuple(row) for row in out.rows()[-1:]])


if __name__ == "__main__":
    main(local_session())
