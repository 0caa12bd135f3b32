"""The anchor that keeps slots on their executors: a tiny cached table, joined with the rows of every epoch.

A seat is a partition. The table is partitioned as the rows are, and it is on the left of the join: Spark then runs
the task of a seat on the executor that has the seat's row in its cache, and a seat without rows still has one row. If
that executor is lost, Spark makes the row again elsewhere, and the state follows. What was tried, and what it costs:
docs/design/2026-11-16-anchors.md.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from midstream.operators.task import SLOT
from midstream.plan.routing import tokens
from midstream.spark.executors import here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 8


@dataclass(frozen=True, slots=True)
class Anchor:
    """A table that is cached on the executors."""

    view: str
    where: tuple[str, ...]  # seat -> executor, when it was made
    frame: DataFrame

    def drop(self) -> None:
        """Release it."""
        self.frame.unpersist()
        self.frame.sparkSession.catalog.dropGlobalTempView(self.view.split(".")[1])


def anchored(spark: SparkSession, seats: int, executors: Collection[str]) -> Anchor:
    """Make an anchor whose seats are spread over the executors as evenly as a few attempts achieve."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")  # it would merge partitions that are small

    def unevenness(anchor: Anchor) -> int:
        """By how many seats executors differ."""
        seats = Counter(dict.fromkeys(executors, 0) | Counter(anchor.where)).values()
        return max(seats) - min(seats)

    best = _made(session, seats)
    for _ in range(_TRIES):
        if unevenness(best) <= 1:
            break
        other = _made(session, seats)
        worse = max(best, other, key=unevenness)
        best = other if worse is best else best
        worse.drop()
    return best


def warmed(spark: SparkSession, executors: Collection[str]) -> None:
    """Start Python, with everything a slot needs, on the executors; some may be too busy to be reached."""
    met: set[str] = set()
    for _ in range(_TRIES):
        tasks = max(spark.sparkContext.defaultParallelism, len(executors))
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_touch, "place string").collect()
        met |= {row.place for row in rows}
        if met.issuperset(executors):
            break


def executors(spark: SparkSession) -> frozenset[str]:
    """The executors that the application has."""
    ids = spark.sparkContext._jsc.sc().getExecutorIds()
    return frozenset(ids.apply(i) for i in range(ids.size()))


def keep_executors(spark: SparkSession, count: int) -> None:
    """Ask Spark for this many executors: it replaces those that are lost, and does not start more."""
    jvm = spark._jvm
    assert jvm is not None
    nowhere = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    spark.sparkContext._jsc.sc().requestTotalExecutors(count, 0, nowhere)


def _made(session: SparkSession, seats: int) -> Anchor:
    known, name = ", ".join(map(str, tokens(seats))), f"midstream_anchor_{os.urandom(6).hex()}"
    frame = session.sql(  # its name is in it, or Spark would reuse another with as many seats
        f"select /*+ REPARTITION({seats}, {SLOT}) */ get(array({known}), cast(id as int)) as {SLOT}, '{name}' as name "
        f"from range(0, {seats}, 1, {seats})"
    ).cache()
    found = {row.token: row.place for row in frame.mapInArrow(_locate, "token int, place string").collect()}
    frame.createGlobalTempView(name)
    return Anchor(f"global_temp.{name}", tuple(found[token] for token in tokens(seats)), frame)


def _locate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = pa.array([here()] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([batch.column(0), places], ["token", "place"])


def _touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import midstream.operators.aggregates.task
    import midstream.operators.functions.task  # noqa: F401 - so that the first epoch finds it loaded

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"place": pa.array([here()] * batch.num_rows, pa.string())})
