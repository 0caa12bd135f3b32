"""A batch is taken apart by Spark's plan of it: each source gets its own rows, and no other."""

from __future__ import annotations

import json
import queue
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.sources.union import TAG, execution_of, parts_of, tagged_union
from midstream.testing import source

Found = dict[int, Counter[tuple[object, ...]] | None]


def files(spark: SparkSession, root: Path, name: str, count: int) -> DataFrame:
    """A stream of so many epochs."""
    return source(spark, str(root / name), "a long", [[(10 * i,), (10 * i + 1,)] for i in range(count)])


def apart(
    spark: SparkSession, root: Path, *sources: DataFrame, change: Callable[[DataFrame], DataFrame] = lambda union: union
) -> list[Found]:
    """Run a query over the union of sources; give the rows of each part, epoch by epoch, checked by their tag.

    As in a job, from the second epoch on Spark plans an epoch as a whole, and not step by step.
    """
    found: list[Found] = []

    def look(batch: DataFrame, epoch: int) -> None:
        tags = range(len(sources))
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        parts = parts_of(batch, execution_of(spark, "apart"), tags)
        rows = Counter(tuple(row) for row in batch.collect())
        found.append({tag: None if parts is None else Counter(map(tuple, parts[tag].collect())) for tag in tags})
        for tag, part in found[-1].items():
            if part is not None:
                assert part == Counter({row: n for row, n in rows.items() if row[0] == tag})

    union = change(tagged_union(list(enumerate(sources))))
    assert union.columns[0] == TAG
    writer = union.writeStream.foreachBatch(look).queryName("apart").trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
    return found


def test_each_source_gets_its_rows_also_where_one_has_ended_and_one_is_a_union_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, two = files(spark, tmp_path, "one", 3), files(spark, tmp_path, "two", 1)
    both = files(spark, tmp_path, "three", 2).union(files(spark, tmp_path, "four", 3)).where("a >= 0")
    found = apart(spark, tmp_path, one, two, both)
    counts = [[sum(part.values()) if part is not None else None for part in epoch.values()] for epoch in found]
    assert counts == [[2, 2, 4], [2, 0, 4], [2, 0, 2]]


def test_the_last_source_that_has_rows_gets_all(spark: SparkSession, tmp_path: Path) -> None:
    found = apart(spark, tmp_path, files(spark, tmp_path, "one", 1), files(spark, tmp_path, "two", 2))
    assert [[sum(part.values()) if part is not None else None for part in epoch.values()] for epoch in found] == [
        [2, 2],
        [0, 2],
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda union: union.repartition(2), id="a shuffle over the union"),
        pytest.param(lambda union: union.coalesce(1), id="merged partitions"),
        pytest.param(lambda union: union.selectExpr("_source + a as _source", "c0_0", "c1_0"), id="a tag that varies"),
    ],
)
def test_a_plan_of_another_form_is_not_taken_apart(
    spark: SparkSession, tmp_path: Path, change: Callable[[DataFrame], DataFrame]
) -> None:
    sources = files(spark, tmp_path, "one", 2), files(spark, tmp_path, "two", 2)

    def changed(union: DataFrame) -> DataFrame:
        return change(union.withColumn("a", F.coalesce("c0_0", "c1_0")))

    assert apart(spark, tmp_path, *sources, change=changed) == [{0: None, 1: None}] * 2


def test_a_job_of_two_sources_keeps_no_batch_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    kept: queue.SimpleQueue[bool] = queue.SimpleQueue()  # cannot be pickled, so the transform has this one

    def watched(df: DataFrame) -> DataFrame:
        kept.put(not df.sparkSession._jsparkSession.sharedState().cacheManager().isEmpty())
        return df

    spark.catalog.clearCache()
    flow = ms.Flow("two-sources")
    left, right = (
        flow.source(name, files(spark, tmp_path, name, 2)).transform(f"seen-{name}", watched)
        for name in ("left", "right")
    )
    flow.union("both", left, right).sink("out", ms.sinks.files(tmp_path / "out", format="json"))
    flow.start(tmp_path / "job", trigger=ms.available_now()).await_termination()
    rows = Counter(
        json.loads(line)["a"]
        for file in (tmp_path / "out").glob("epoch=*/*.json")
        for line in file.read_text().splitlines()
    )
    assert rows == Counter({0: 2, 1: 2, 10: 2, 11: 2})
    assert {kept.get() for _ in range(kept.qsize())} == {False}


def made(spark: SparkSession, root: Path, how: str) -> DataFrame:
    """A source that makes its rows of what it reads, in a way that Spark plans in a form of its own."""
    rows = files(spark, root, how, 3)
    if how == "columnar":
        spark.range(4).selectExpr("id as a").write.parquet(str(root / "table"))
        rows = spark.readStream.schema("a long").parquet(str(root / "table"))
    elif how == "python":
        rows = rows.select(F.udf(lambda a: a + 1, "long")("a").alias("a"))
    elif how == "arrow":
        rows = rows.mapInArrow(lambda batches: batches, "a long")
    elif how == "static join":
        rows = rows.join(spark.range(0, 20, 2).selectExpr("id as a", "id as b"), "a")
    elif how == "joined twice":
        table = spark.range(0, 20).selectExpr("id as a", "id % 3 as b").groupBy("a").agg(F.max("b").alias("b"))
        rows = rows.join(table, "a").join(table.withColumnRenamed("b", "c"), "a")
    elif how == "spread":
        rows = rows.repartition(3)
    elif how == "exploded":
        rows = rows.selectExpr("explode(array(a, a + 100)) as a", "a as b").where("b > 0")
    elif how == "timed":
        rows = rows.selectExpr("a", "timestamp_seconds(a) as ts").withWatermark("ts", "1 second")
    elif how == "random":
        rows = rows.selectExpr("a", "rand(7) as r")
    return rows


STEP_BY_STEP = ("static join", "joined twice", "spread")  # Spark does not show the readers of these beforehand


@pytest.mark.parametrize("how", ["columnar", "python", "arrow", "exploded", "timed", "random", *STEP_BY_STEP])
def test_however_a_source_makes_its_rows_they_are_the_same(spark: SparkSession, tmp_path: Path, how: str) -> None:
    first, *later = apart(spark, tmp_path, made(spark, tmp_path, how), files(spark, tmp_path, "other", 3))
    assert (first[0] is None) == (how in STEP_BY_STEP)
    assert [None not in epoch.values() for epoch in later] == [True, True]
    assert sum(part.total() for epoch in (first, *later) if (part := epoch[0]) is not None) > 0


def test_a_source_whose_shuffle_is_used_twice_is_not_taken_apart(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark uses again is no reader, and its rows are no rows of one."""
    half = files(spark, tmp_path, "half", 3).where("a % 2 = 0").repartition(2)
    found = apart(spark, tmp_path, half.union(half), files(spark, tmp_path, "other", 3))
    assert all(part is None for epoch in found for part in epoch.values())


def test_what_is_not_asked_for_is_not_worked_out_and_spark_counts_what_was_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sparkContext.setLogLevel("OFF")
    dear = files(spark, tmp_path, "one", 2).selectExpr("a", "raise_error(string(a)) as b")
    flow = ms.Flow("dear")
    wanted = flow.source("dear", dear).transform("cheap", lambda df: df.where("a % 2 = 0").select("a"))
    wanted.sink("out", ms.sinks.memory())
    job = flow.start(tmp_path / "job", trigger=ms.available_now())
    job.await_termination()
    assert job.query is not None
    assert sum(progress["numInputRows"] for progress in job.query.recentProgress) == 4
