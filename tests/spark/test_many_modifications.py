"""A job that is modified a thousand times is none the worse for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.bench.rows import Rows
from midstream.modifications.queue import KEPT
from midstream.plan import code

MANY, ROWS = 1_000, 500
WARM = 100  # modifications after which nothing may grow any more


def above(limit: int) -> Callable[[DataFrame], DataFrame]:
    def keep(df: DataFrame) -> DataFrame:
        return df.where(f"price > -{limit}")  # all of them

    return keep


def sizes(checkpoint: Path) -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "plans": len(os.listdir(checkpoint / "plans")),
        "modifications": len(os.listdir(checkpoint / "modifications")),
        "functions": len(code._live) + len(code._loaded),
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") >> 20,
    }


@pytest.mark.slow
def test_a_thousand_modifications_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    flow = ms.Flow("many")
    rows = flow.source("rows", Rows(1_000).stream(spark, ROWS)).transform("all", above(0))
    rows.key_by("key").aggregate("sums", n=ms.count()).sink("out", ms.sinks.noop())
    warm: dict[str, int] = {}
    with flow.start(tmp_path / "checkpoint", trigger=ms.every(0), cache=tmp_path / "cache") as job:
        for number in range(1, MANY + 1):
            job.modify(ms.replace("all", above(number))).wait(120)
            if number == WARM:
                warm = sizes(tmp_path / "checkpoint")
        found = sizes(tmp_path / "checkpoint")
    assert job.plan.version == MANY + 1
    assert len(job.modifications) == KEPT
    for what, size in found.items():
        assert size <= warm[what] * 1.2 + 10, f"{what} grew from {warm[what]} to {size}"
    saved = job.savepoint(tmp_path / "saved")
    counted = spark.read.parquet(f"{saved}/state/sums/record").selectExpr("sum(n) as n").collect()[0].n
    assert counted == (job.status.epoch + 1) * ROWS
