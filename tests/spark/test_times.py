"""Times at the edge of the world, and the zone of the session: functions get UTC, and no row ends a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing

ZONE = "spark.sql.session.timeZone"
UTC = timezone.utc


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose clocks are put forward in the night of 2026-03-08."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "America/New_York")
    yield spark
    spark.conf.set(ZONE, str(before))


class Days(ms.KeyedFunction):
    """Says what it sees of times: of the row, of the key, and a day later."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            yield "row", str(row.ts.utcoffset()), row.ts.hour
            yield "key", str(key.utcoffset()), key.hour
            yield "day", str(row.ts + timedelta(days=1) - row.ts), (row.ts + timedelta(days=1)).hour


def test_functions_get_times_in_utc_whatever_the_zone_of_the_session(new_york: SparkSession) -> None:
    noon = datetime(2026, 3, 7, 17, tzinfo=UTC)  # noon in New York, the day before

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        seen = rows.key_by("ts").process("days", Days(), schema="what string, offset string, hour int")
        seen.sink("out", ms.sinks.memory())

    done = testing.run(new_york, build, rows=testing.batches("ts timestamp, v long", [(noon, 1)]))
    assert Counter(map(tuple, done.rows("out"))) == {
        ("row", "0:00:00", 17): 1,
        ("key", "0:00:00", 17): 1,
        ("day", "1 day, 0:00:00", 17): 1,
    }


class Seen(ms.KeyedFunction):
    count = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.count += len(rows)
        for row in rows:
            yield key, self.count, row.ts


# Years in which Spark has times and Python has none.
ODD = f"timestamp_micros(if(v < 0, {-(1 << 60)}L, if(v > 100, {1 << 60}L, v * 1000000)))"
EPOCHS = [[(1, 1), (1, -5), (2, 500), (2, 2)], [(1, 3), (2, 999), (1, 20)], [(1, 40), (2, 41)]]


def test_a_time_that_no_calendar_has_is_late_with_a_reason_and_moves_no_watermark(spark: SparkSession) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        timed = rows.transform("odd", lambda df: df.selectExpr("k", "v", f"{ODD} as ts")).with_watermark("ts", 0)
        windows = timed.key_by("k").window(ms.tumbling("10 seconds")).aggregate("sums", n=ms.count())
        windows.sink("out", ms.sinks.memory())
        windows.late.transform("why", lambda df: df.select("k", "v", "late_reason")).sink("late", ms.sinks.memory())
        visits = timed.key_by("k").window(ms.session("5 seconds")).aggregate("visits", n=ms.count())
        visits.late.transform("why-not", lambda df: df.select("v", "late_reason")).sink("missed", ms.sinks.memory())
        timed.key_by("k").process("seen", Seen(), schema="k long, n long, ts timestamp").sink(
            "seen-out", ms.sinks.noop()
        )

    batches = testing.batches("k long, v long", *EPOCHS)
    done = testing.run(spark, build, end_of_input=True, rows=batches)
    odd = {(1, -5), (2, 500), (2, 999)}
    reason = "outside the years 1 to 9999"
    assert Counter(map(tuple, done.rows("late"))) == Counter((k, v, reason) for k, v in odd)
    assert Counter(map(tuple, done.rows("missed"))) == Counter((v, reason) for _, v in odd)
    assert sum(row.n for row in done.rows("out")) == sum(map(len, EPOCHS)) - len(odd)
    marks = [mark for epoch in done.epochs() for mark in epoch.watermarks.values()]
    assert marks
    assert all(mark is None or mark < "1970-01-02" for mark in marks)


def test_a_clock_that_was_ten_years_ahead_does_not_stop_time_to_live(spark: SparkSession) -> None:
    class Recent(ms.KeyedFunction):
        last = ms.value("long", ttl="1 minute")

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            yield key, self.last
            self.last = rows[-1].v

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").process("recent", Recent(), schema="k long, last long").sink("out", ms.sinks.memory())

    start, minute = 1_800_000_000_000_000, 60_000_000
    ahead = start + 10 * 365 * 86_400_000_000
    readings = iter([start, ahead, start + minute, start + 2 * minute, start + 4 * minute])
    rows = testing.batches("k long, v long", *([(1, number)] for number in range(5)))
    done = testing.run(spark, build, clock=lambda: next(readings), rows=rows)
    assert [row.last for row in done.rows("out")] == [None, None, 1, None, None]
