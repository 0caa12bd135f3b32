"""Windows by count over real Spark, compared with the definition in plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream import testing
from midstream.plan.windows import CountWindow
from midstream.testing import Live
from tests.support.counting import Naive
from tests.support.windowing import SCHEMA, cut, rows_of, some_events

AGGREGATES = {
    "n": ms.count(), "there": ms.count("price"), "total": ms.sum("price"), "average": ms.mean("price"),
    "low": ms.min("price"), "high": ms.max("price"), "begin": ms.first("price"), "end": ms.last("price"),
}  # fmt: skip
WINDOWS = {"fours": (4, 4, 0), "fives": (5, 2, 0), "sixes": (6, 6, 3_000_000)}


def test_windows_by_count_are_what_their_definition_says_through_a_crash(spark: SparkSession) -> None:
    lists = cut(some_events(seed=13, count=80), 27)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", 0)
        for name, (size, step, timeout) in WINDOWS.items():
            window = ms.count_window(size, step, timeout / 1e6 if timeout else None)
            timed.key_by("user").window(window).aggregate(name, **AGGREGATES).sink(f"{name}.out", ms.sinks.memory())
            unkeyed = timed.window(window).aggregate(f"{name}.all", **AGGREGATES)
            unkeyed.sink(f"{name}.all.out", ms.sinks.memory())

    faults = [*map(rows_of, lists[:1]), testing.Crash(), *map(rows_of, lists[1:])]
    found = testing.run(spark, build, end_of_input=True, rows=testing.batches(SCHEMA, *faults))
    assert found.crashes == 1
    for name, shape in WINDOWS.items():
        for keyed in (True, False):
            naive, greatest, expected = Naive(CountWindow(*shape)), None, Counter[Any]()
            for events in lists:
                timed = [(user if keyed else "", price, round((at or 0.0) * 1e6)) for user, price, at in events]
                expected += naive.epoch(sorted(timed, key=lambda row: row[2]), greatest)
                greatest = max(row[2] for row in timed)
            expected += naive.epoch([], 1 << 62)
            sink = f"{name}.out" if keyed else f"{name}.all.out"
            want = Counter(row if keyed else row[1:] for row in expected.elements())
            assert Counter(map(tuple, found.rows(sink))) == want, sink


def test_rows_may_end_the_windows_of_their_key_or_of_all(spark: SparkSession) -> None:
    lists = cut(some_events(seed=14, count=80), 27)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.with_watermark("ts", 0)
        for name, stream in (("keyed", timed.key_by("user")), ("all", timed)):
            windows = stream.window(ms.count_window(7, 3)).with_punctuation("price % 5 = 0")  # null: does not
            windows.aggregate(name, **AGGREGATES).sink(f"{name}.out", ms.sinks.memory())

    found = testing.run(spark, build, rows=testing.batches(SCHEMA, *map(rows_of, lists)))
    for name in ("keyed", "all"):
        naive, expected = Naive(CountWindow(7, 3, 0)), Counter[Any]()
        for events in lists:
            rows = sorted(events, key=lambda event: event[2] or 0.0)
            for user, price, _ in rows:  # which rows end windows is said one by one
                row = (user if name == "keyed" else "", price, None)
                expected += naive.epoch([row], None, ends=price if price is not None and price % 5 == 0 else None)
        want = Counter(row if name == "keyed" else row[1:] for row in expected.elements())
        assert Counter(map(tuple, found.rows(f"{name}.out"))) == want
        assert any(row.n < 7 for row in found.rows(f"{name}.out"))


def test_a_savepoint_says_what_open_windows_hold(spark: SparkSession, tmp_path: Path) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        fours = rows.with_watermark("ts", 0).key_by("user").window(ms.count_window(4, 3))
        fours.aggregate("fours", n=ms.count(), total=ms.sum("price")).sink("out", ms.sinks.memory())

    with Live(spark, build, rows=SCHEMA) as live:
        live.feed("rows", rows_of([("ann", price, float(price)) for price in range(5)]))
        live.job.savepoint(str(tmp_path / "saved"))
    kept = duckdb.sql(f"select seen, open, panes from '{tmp_path}/saved/state/fours/record/*.parquet'").fetchall()
    (seen, windows, panes), *_ = kept
    assert (seen, [window["begin"] for window in windows]) == (5, [3])
    assert panes == [{"begin": at, "count": 1, "sum price": at, "count price": 1} for at in (3, 4)], (
        "cut where the first window ended"
    )


def test_what_windows_by_count_cannot_do_is_refused(spark: SparkSession) -> None:
    flow = ms.Flow("refused")
    rows = flow.source("rows", spark.readStream.format("rate").load())
    tens = rows.key_by("value").window(ms.count_window(10))
    with pytest.raises(ms.PlanError, match="there is no column 'other'"):
        tens.aggregate("tens", n=ms.sum("other"))
    with pytest.raises(ms.PlanError, match=r"quantiles\('value'\) of a column of type bigint cannot be kept"):
        tens.aggregate("tens", n=ms.quantiles("value", 0.5))
    with pytest.raises(ms.PlanError, match="neither lateness nor emit"):
        tens.aggregate("tens", n=ms.count(), emit="update")
    with pytest.raises(ms.PlanError, match="another result has the name 'window' already"):
        tens.aggregate("tens", window=ms.count())
    ended = rows.transform("ended", lambda df: df.withColumn("_ends", F.lit(True))).with_watermark("timestamp", 0)
    with pytest.raises(ms.PlanError, match="the column name '_ends' is taken by Midstream; rename it"):
        ended.window(ms.count_window(10)).aggregate("all", n=ms.count())
    with pytest.raises(ms.PlanError, match="the column name '_ends' is taken by Midstream; rename it"):
        ended.window(ms.tumbling(10)).top("best", by="value")
    with pytest.raises(ms.PlanError, match="which has no windows of event time"):
        _ = tens.aggregate("tens", n=ms.count()).late
