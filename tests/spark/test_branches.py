"""A branch that is added live may hold what must know the columns of its rows: joins, counts, tops, late rows."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream.live import Live

START = datetime(2026, 1, 1)
SCHEMAS = {"bids": "auction long, price long, ts timestamp", "items": "id long, name string"}


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def build(flow: ms.Flow, bids: ms.Stream, items: ms.Stream) -> None:
    timed = bids.with_watermark("ts", 0, id="timed")
    timed.key_by("auction").window(ms.tumbling(10)).aggregate("counts", n=ms.count()).sink("out", ms.sinks.memory())
    items.sink("known", ms.sinks.noop())


def test_a_branch_joins_ranks_and_counts_from_its_cut_on(spark: SparkSession) -> None:
    out = {name: ms.sinks.memory() for name in ("named", "best", "pairs", "late", "best.late")}

    def more(timed: ms.Stream) -> None:
        keyed = timed.key_by("auction")
        keyed.join("named", timed.flow.stream("items").key_by("id")).sink("named.out", out["named"])
        best = timed.window(ms.tumbling(10)).top("best", by="price")
        best.sink("best.out", out["best"])
        best.late.sink("best.late.out", out["best.late"])
        pairs = keyed.window(ms.count_window(2)).aggregate("pairs", total=ms.sum("price"))
        pairs.sink("pairs.out", out["pairs"])

    def rows(name: str) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, out[name].rows()))

    with Live(spark, build, **SCHEMAS) as live:
        live.feed("bids", [(1, 100, at(1))])  # before the cut
        live.modify(
            ms.branch("timed", more),
            ms.branch("counts", lambda counts: counts.late.sink("late.out", out["late"])),  # type: ignore[attr-defined]
        )
        live.feed("items", [(1, "lamp"), (2, "chair")])
        live.feed("bids", [(1, 5, at(2)), (2, 7, at(3)), (1, 6, at(4))])
        live.feed("bids", [(2, 1, at(25)), (2, 3, at(26))])
        live.feed("bids", [(1, 50, at(5)), (2, 4, at(27))])  # the first of them is late
        live.next_epoch()
        assert [change.phase for change in live.job.modifications] == [ms.Phase.COMPLETED]
    assert rows("pairs") == Counter({(1, 0, 11): 1, (2, 0, 8): 1, (2, 1, 7): 1})
    assert rows("late") == rows("best.late") == Counter({(1, 50, at(5), "late"): 1})
    assert rows("best") == Counter({(2, 7, at(3), at(0), at(10)): 1})
    assert {(auction, price, name) for auction, price, _, name in rows("named")} == {
        (1, 5, "lamp"), (1, 6, "lamp"), (1, 50, "lamp"),
        (2, 7, "chair"), (2, 1, "chair"), (2, 3, "chair"), (2, 4, "chair"),
    }  # fmt: skip
    assert rows("named").total() == 7


def test_a_branch_that_does_not_fit_is_rejected_and_the_job_goes_on(spark: SparkSession) -> None:
    with Live(spark, build, **SCHEMAS) as live:
        change = live.job.modify(
            ms.branch(
                "timed", lambda timed: timed.key_by("auction").join("j", timed.flow.stream("items").key_by("name"))
            )
        )
        assert not change.reached(ms.Phase.COMPLETED, 120)
        assert change.phase is ms.Phase.REJECTED
        assert "the keys differ: auction bigint on the left" in change.error
        live.feed("bids", [(1, 5, at(2))])


def test_a_branch_is_built_with_the_session_of_the_job(spark: SparkSession) -> None:
    other, out = spark.newSession(), ms.sinks.memory()
    other.range(3).selectExpr("id", "id * 10 as rate").createOrReplaceTempView("rates_of_the_job")

    def rated(flow: ms.Flow, bids: ms.Stream, items: ms.Stream) -> None:
        items.transform("rated", lambda df: df.join(other.table("rates_of_the_job"), "id")).sink("all", ms.sinks.noop())
        bids.sink("known", ms.sinks.noop())

    def pairs(rated: ms.Stream) -> None:
        rated.key_by("id").window(ms.count_window(2)).aggregate("pairs", total=ms.sum("rate")).sink("out", out)

    with Live(other, rated, **SCHEMAS) as live:
        live.modify(ms.branch("rated", pairs))
        live.feed("items", [(1, "lamp"), (1, "chair")])
    assert list(map(tuple, out.rows())) == [(1, 0, 20)]
