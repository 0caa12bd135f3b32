"""The user's own partitioning: where keys go, and what is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage

SCHEMA = "city string, street long, v long"
ROWS = [(city, street, street) for city in ("ulm", "bonn", "kiel", "") for street in range(40)]


def flow_over(spark: SparkSession, directory: Path, out: Any, partition_by: str) -> ms.Flow:
    flow = ms.Flow("cities")
    rows = flow.source("rows", testing.source(spark, str(directory / "rows"), SCHEMA, [ROWS, ROWS]))
    keyed = rows.key_by("city", "street", partition_by=partition_by)
    keyed.aggregate("sums", slots=3, total=ms.sum("v")).sink("out", out)
    return flow


def groups_of(checkpoint: Path, id: str = "sums") -> int:
    """How many groups have state."""
    last = Journal(Storage(str(checkpoint))).newest_commit()
    assert last is not None
    return sum(changed is not None for changed in last.operators[id].changed)


def test_keys_of_one_partition_are_in_one_group(spark: SparkSession, tmp_path: Path) -> None:
    for partition_by, groups in (("city", 4), ("", 89), ("upper(city), street % 2", 8)):
        out = ms.sinks.memory()
        checkpoint = tmp_path / f"job-{len(partition_by)}"
        flow = flow_over(spark, tmp_path, out, partition_by)
        flow.start(checkpoint, trigger=ms.available_now(), cache=tmp_path / "cache").await_termination()
        totals: dict[Any, int] = defaultdict(int)
        for city, street, v in ROWS * 2:
            totals[city, street] += v
        last = {(row.city, row.street): row.total for row in out.rows()}
        assert last == totals
        assert len(out.rows()) == 2 * len(ROWS)
        assert abs(groups_of(checkpoint) - groups) <= (12 if groups > 50 else 1), partition_by


def test_tops_and_windows_by_count_keep_to_it(spark: SparkSession, tmp_path: Path) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        keyed = rows.with_watermark("at", 0).key_by("city", "street", partition_by="city")
        keyed.window(ms.count_window(2)).aggregate("pairs", n=ms.count()).sink("pairs.out", ms.sinks.memory())
        keyed.window(ms.tumbling(10)).top("best", by="v").sink("best.out", ms.sinks.memory())

    timed = [(*row, datetime(2026, 1, 1)) for row in ROWS]
    rows = testing.batches(f"{SCHEMA}, at timestamp", timed)
    testing.run(spark, build, checkpoint=str(tmp_path / "job"), rows=rows)
    assert {groups_of(tmp_path / "job", id) for id in ("pairs", "best")} == {4}


def test_another_partitioning_is_refused_but_for_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    first, out = ms.sinks.memory(), ms.sinks.memory()
    job = flow_over(spark, tmp_path, first, "city").start(
        tmp_path / "job", trigger=ms.available_now(), cache=tmp_path / "cache"
    )
    job.await_termination()
    saved = job.savepoint(tmp_path / "saved")
    for on_drift in ("fail", "apply"):
        with pytest.raises(ms.MidstreamError, match="partition"):
            flow_over(spark, tmp_path, first, "street").start(
                tmp_path / "job", trigger=ms.available_now(), on_drift=on_drift, cache=tmp_path / "cache"
            )
    again = flow_over(spark, tmp_path, out, "street").start(
        tmp_path / "other", savepoint=saved, trigger=ms.available_now(), cache=tmp_path / "cache"
    )
    again.await_termination()
    assert groups_of(tmp_path / "other") > 20
    read = spark.read.parquet(f"{again.savepoint(tmp_path / 'again')}/state/sums/record").collect()
    assert Counter((r.city, r.street, r.total) for r in read) == Counter((c, s, 2 * v) for c, s, v in ROWS)


def test_an_expression_over_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ms.PlanError, match="must be an expression over the key columns city, street alone"):
        flow_over(spark, tmp_path, ms.sinks.memory(), "v").start(tmp_path / "job", trigger=ms.available_now())
