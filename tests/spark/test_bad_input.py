"""Bad input: rows without a key, a time or a known kind, wrong clocks, odd prices. Each row is somewhere."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.nexmark.queries import Events, q5

START = datetime(2026, 1, 1)
SCHEMA = "kind string, auction long, price double, ts timestamp"
FUTURE = datetime(2031, 1, 1)
PRICES = [1.0, -7.5, math.nan, math.inf, -math.inf, None, 0.0, -0.0]


def rows() -> list[list[tuple[Any, ...]]]:
    """Five epochs; in each all kinds of prices, and one of everything that is bad."""
    found = []
    for epoch in range(5):
        at = START + timedelta(seconds=4 * epoch)
        good = [("bid", i % 3, price, at + timedelta(milliseconds=100 * i)) for i, price in enumerate(PRICES)]
        bad = [
            ("bid", None, 5.0, at),  # no key
            ("bid", 1, 5.0, None),  # no time
            ("bid", 2, 5.0, FUTURE),  # a clock that is years ahead
            ("gift", 1, 5.0, at),  # a kind that nobody knows
            (None, 1, 5.0, at),
            ("bid", 0, 5.0, START - timedelta(days=1)),  # late, from the second epoch on
        ]
        found.append(good + bad)
    return found


def plain(value: Any) -> Any:
    """NaN is not equal to itself: compare it by its name."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def test_every_bad_row_is_counted_somewhere_and_one_bad_clock_closes_nothing(spark: SparkSession) -> None:
    def build(flow: ms.Flow, events: ms.Stream) -> None:
        bids = events.transform("bids", lambda df: df.where("kind = 'bid'"))
        unknown = events.transform("unknown", lambda df: df.where("kind is null or kind not in ('bid', 'auction')"))
        unknown.sink("unknown.out", ms.sinks.memory())
        timed = bids.with_watermark("ts", "1 second", ahead="1 day")
        windows = timed.key_by("auction").window(ms.tumbling("10 seconds"))
        found = windows.aggregate(
            "prices", n=ms.count(), most=ms.max("price"), least=ms.min("price"), total=ms.sum("price")
        )
        found.sink("windows.out", ms.sinks.memory())
        found.late.sink("late.out", ms.sinks.memory())
        best = timed.window(ms.tumbling("10 seconds")).top("best", by="price")
        visits = timed.key_by("auction").window(ms.session("2 seconds")).aggregate("visits", n=ms.count())
        for name, windows in {"best": best, "visits": visits}.items():
            windows.sink(f"{name}.out", ms.sinks.memory())
            windows.late.sink(f"{name}.late.out", ms.sinks.memory())

    clock = testing.ManualClock(START)
    done = testing.run(spark, build, end_of_input=True, clock=clock, events=testing.batches(SCHEMA, *rows()))
    every = [row for epoch in rows() for row in epoch]
    late = Counter(row.late_reason for row in done.rows("late.out"))
    assert late == {"no event time": 5, "too far ahead": 5, "late": 4}
    assert sum(epoch.late["prices"] for epoch in done.epochs()) == 14
    for name in ("best", "visits"):
        assert Counter(row.late_reason for row in done.rows(f"{name}.late.out")) == late
        assert sum(epoch.late[name] for epoch in done.epochs()) == 14
    assert sum(row.n for row in done.rows("visits.out")) + 14 + 10 == len(every)
    assert {row.window_start.year for row in done.rows("best.out")} == {START.year, START.year - 1}
    assert len(done.rows("unknown.out")) == 10
    assert sum(row.n for row in done.rows("windows.out")) + 14 + 10 == len(every), "no row is lost, or in two places"
    in_time = [row for row in every if row[0] == "bid" and row[3] is not None and START <= row[3] < FUTURE]
    first = next(row for row in every if row[3] is not None and row[3] < START)  # there was no watermark yet
    spark.createDataFrame([*in_time, first], SCHEMA).createOrReplaceTempView("bids_in_time")
    grouped = spark.sql(
        "select auction, window(ts, '10 seconds').start as start, count(*), max(price), min(price), sum(price) "
        "from bids_in_time group by all"
    )
    wanted = Counter(tuple(map(plain, row)) for row in grouped.collect())
    found = [(r.auction, r.window_start, r.n, r.most, r.least, r.total) for r in done.rows("windows.out")]
    assert Counter(tuple(map(plain, row)) for row in found) == wanted


def test_a_query_of_nexmark_takes_bad_bids(spark: SparkSession) -> None:
    """The hottest auctions, where bids have no auction, no time, or a price that is none."""
    lists = [[row for row in epoch if row[0] == "bid" and row[3] != FUTURE] for epoch in rows()]

    def build(flow: ms.Flow, bid: ms.Stream) -> None:
        class Given(Events):
            def bids(self, *columns: str) -> ms.Stream:
                return bid.with_watermark("ts", "1 second")

        q5(Given(flow, lambda table: None, size=10.0, slide=10.0)).sink("out", ms.sinks.memory())  # type: ignore[arg-type,return-value]

    done = testing.run(spark, build, end_of_input=True, bid=testing.batches(SCHEMA, *lists))
    counted = Counter[Any]()
    for number, epoch in enumerate(lists):
        for _, auction, _, at in epoch:
            if at is not None and (at >= START or number == 0):
                counted[(auction, at - timedelta(seconds=at.second % 10, microseconds=at.microsecond))] += 1
    best = {start: max(n for (_, s), n in counted.items() if s == start) for _, start in counted}
    wanted = Counter((auction, n, start) for (auction, start), n in counted.items() if n == best[start])
    assert Counter((r.auction, r.bids, r.window_start) for r in done.rows("out")) == wanted
    assert any(auction is None for auction, _ in counted), "rows without a key are a key of their own"
