"""A job on a real cluster, with a store and a strategy of another package: its groups move one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.placement.anchor import executors
from midstream.testing import Live
from tests.outside.others import OneByOne

GROUPS, KEYS = 16, 300


def run(spark: SparkSession, until: Callable[[Callable[[], bool], str], None]) -> dict[str, Any]:
    """Rescale from two slots to three; say how many groups waited after each epoch, and what came of it."""
    out, told = ms.sinks.memory(), dict[str, Any]()

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").aggregate("sums", slots=2, total=ms.sum("v")).sink("out", out)

    until(lambda: len(executors(spark)) == 3, "there are three executors")
    options = {"groups": GROUPS, "store": "tests.outside.whole:Whole"}
    with Live(spark, build, options=options, rows="k long, v long") as live:
        for _ in range(2):
            live.feed("rows", [(k, 1) for k in range(KEYS)])
        before = len(live.progress)
        moved = live.job.modify(ms.rescale("sums", slots=3, strategy=OneByOne()))
        moved.reached(ms.Phase.COMPLETED, 300)
        told["moved"] = [moved.phase.value, moved.note, moved.error]
        told["waiting"] = [progress.moving.get("sums", 0) for progress in live.progress[before:]]
        live.feed("rows", [(k, 1) for k in range(KEYS)])
        told["restored"] = live.progress[-1].restored
        told["groups"] = [slot.groups for slot in live.job.slots]
        caches = [cache for cache in Path(live._directory, "cache").iterdir() if any(cache.rglob("*.whole"))]
        told["caches"] = len(caches)
    told["sums"] = Counter({row.k: row.total for row in out.rows()}.values())
    return told
