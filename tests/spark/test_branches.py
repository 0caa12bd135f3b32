"""What must know the columns of its rows, joins, counts, tops and late rows, is added live and put in others' place."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.testing import Live

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


def test_what_is_built_is_inserted_and_replaced_and_taken_back(spark: SparkSession) -> None:
    """A top becomes one of two, with windows by count behind it; what read it goes on, its late rows too."""
    out, ones, late = ms.sinks.memory(), ms.sinks.memory(), ms.sinks.memory()

    def windows(flow: ms.Flow, bids: ms.Stream, items: ms.Stream) -> None:
        timed = bids.with_watermark("ts", 0, id="timed")
        best = timed.window(ms.tumbling(10)).top("best", by="price")
        best.late.sink("late", late)
        best.transform("same", lambda df: df).sink("out", out)
        items.sink("known", ms.sinks.noop())

    def ids(live: Live) -> list[str]:
        return [operator.id for operator in live.job.plan.operators]

    with Live(spark, windows, **SCHEMAS) as live:
        before = ids(live)
        live.feed("bids", [(1, 5, at(1)), (2, 7, at(2)), (3, 7, at(3))])
        two = live.modify(
            ms.replace("best", ms.built(lambda timed: timed.window(ms.tumbling(10)).top("best", 2, by="price")))
        )
        assert sorted(ids(live)) == sorted(before)
        once = ms.built(lambda best: best.key_by("auction").window(ms.count_window(1)).aggregate("ones", n=ms.count()))
        inserted = live.modify(
            ms.insert("ones", once, after="same"), ms.remove("out"), ms.add_sink("ones.out", ones, after="ones")
        )
        live.feed("bids", [(1, 5, at(11)), (2, 7, at(12)), (3, 6, at(13))])
        live.feed("bids", [(1, 1, at(25))])
        live.feed("bids", [(4, 9, at(4))])  # late
        live.next_epoch()
        for change in (inserted, two):
            change.undo().wait(60)
        assert sorted(ids(live)) == sorted(before)
        live.feed("bids", [(1, 5, at(35)), (2, 7, at(36)), (3, 6, at(37))])
        live.feed("bids", [(1, 1, at(55))])
        live.next_epoch()
    assert sorted(map(tuple, ones.rows())) == [(2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 1, 1)], "two of each window"
    assert sorted(map(tuple, out.rows())) == [(1, 1, at(25), at(20), at(30)), (2, 7, at(36), at(30), at(40))]
    assert list(map(tuple, late.rows())) == [(4, 9, at(4), "late")]


def test_what_cannot_be_built_is_rejected_with_the_reason(spark: SparkSession) -> None:
    def other_name(rows: ms.Stream) -> Any:
        return rows.key_by("auction").window(ms.count_window(2)).aggregate("pairs", n=ms.count())

    with pytest.raises(ms.PlanError, match="needs a function of a stream"):
        ms.built("counts")  # type: ignore[arg-type]
    with Live(spark, build, **SCHEMAS) as live:
        for change, reason in (
            (ms.replace("counts", ms.built(other_name)), "made 'pairs', but no operator 'counts'"),
            (ms.insert("ones", ms.built(other_name), after="timed"), "made 'pairs', but no operator 'ones'"),
            (ms.insert("ones", ms.built(lambda rows: None), after="timed"), "add operators and sinks to the stream"),
            (ms.replace("bids", ms.built(other_name)), "'bids' reads nothing"),
        ):
            modification = live.job.modify(change)
            assert not modification.reached(ms.Phase.COMPLETED, 60)
            assert modification.phase is ms.Phase.REJECTED
            assert reason in modification.error


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
