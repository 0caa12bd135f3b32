"""Flows over real Spark: what a user writes gives what a plain computation gives."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.testing import Live, batches

BIDS = "auction long, bidder string, price long, ts timestamp"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def bid(auction: int, bidder: str, price: int, second: int = 0) -> tuple[Any, ...]:
    return auction, bidder, price, START + timedelta(seconds=second)


THREE = (
    [bid(1, "ann", 10, 1), bid(2, "bob", 20, 2), bid(1, "bob", 30, 3)],
    [bid(1, "cid", 5, 4)],
    [bid(2, "ann", 7, 6), bid(3, "ann", 1, 5), bid(2, "bob", 8, 7)],
)


class Total(ms.KeyedFunction):
    total = ms.value("long", default=0)
    bidders = ms.map("string", "long")
    prices = ms.list("long")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.total += row.price
            self.bidders[row.bidder] = self.bidders.get(row.bidder, 0) + 1
            self.prices.append(row.price)
        yield key, self.total, len(self.bidders), list(self.prices)


class Counted(ms.KeyedFunction):
    """Counts the rows of a key."""

    n = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.n += len(rows)
        yield key, self.n


def test_a_transform_and_a_sink_give_each_row_once(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.transform("big", lambda df: df.where("price >= 10").select("auction", "price")).sink(
            "out", ms.sinks.memory()
        )

    result = testing.run(spark, build, bids=batches(BIDS, *THREE))
    assert Counter(result.rows("out")) == Counter([(1, 10), (2, 20), (1, 30)])


def test_a_keyed_function_keeps_values_maps_and_lists_over_epochs(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        schema = "auction long, total long, bidders long, prices array<long>"
        bids.with_watermark("ts", "0 seconds").key_by("auction").process("sums", Total(), schema=schema).sink(
            "out", ms.sinks.memory()
        )

    result = testing.run(spark, build, bids=batches(BIDS, *THREE), state=True)
    assert Counter(map(repr, result.rows("out"))) == Counter(
        map(
            repr,
            [
                *spark.createDataFrame(
                    [
                        (1, 40, 2, [10, 30]),
                        (2, 20, 1, [20]),
                        (1, 45, 3, [10, 30, 5]),
                        (2, 35, 2, [20, 7, 8]),
                        (3, 1, 1, [1]),
                    ],
                    schema="auction long, total long, bidders long, prices array<long>",
                ).collect()
            ],
        )
    )
    assert {row.auction: row.total for row in result.state["sums"]["record"]} == {1: 45, 2: 35, 3: 1}
    assert {(r.auction, r.map_key): r.value for r in result.state["sums"]["map-bidders"]} == {
        (1, "ann"): 1, (1, "bob"): 1, (1, "cid"): 1, (2, "bob"): 2, (2, "ann"): 1, (3, "ann"): 1,
    }  # fmt: skip


def test_declared_aggregates_agree_with_spark_over_the_whole_input(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.with_watermark("ts", "0 seconds").key_by("auction").aggregate(
            "sums",
            n=ms.count(),
            total=ms.sum("price"),
            low=ms.min("price"),
            high=ms.max("bidder"),
            mid=ms.mean("price"),
            opening=ms.first("bidder"),
            latest=ms.last("price"),
            newest=ms.max("ts"),
            people=ms.approx_distinct("bidder"),
            moments=ms.approx_distinct("ts"),
            median=ms.quantiles("price", 0.5),
        ).sink("out", ms.sinks.memory())

    result = testing.run(spark, build, bids=batches(BIDS, *THREE))
    final = {row.auction: row for row in result.rows("out")}
    rows = [row for epoch in THREE for row in epoch]
    spark.createDataFrame(rows, BIDS).createOrReplaceTempView("bids")
    expected = spark.sql(
        """select auction, count(1) n, sum(price) total, min(price) low, max(bidder) high, avg(price) mid,
                  min_by(bidder, ts) opening, max_by(price, ts) latest, max(ts) newest,
                  count(distinct bidder) people, count(distinct ts) moments
           from bids group by auction"""
    ).collect()
    for row in expected:
        found = final[row.auction].asDict()
        assert {name: found[name] for name in row.asDict()} == row.asDict()
    assert final[1].median == 10.0


def test_two_sources_a_union_and_two_consumers_are_one_consistent_cut(spark: SparkSession) -> None:
    def build(flow: ms.Flow, left: ms.Stream, right: ms.Stream) -> None:
        both = left.union("both", right)
        both.key_by("auction").aggregate("counts", n=ms.count()).sink("counts_out", ms.sinks.memory())
        both.transform("prices", lambda df: df.select("price")).sink("prices_out", ms.sinks.memory())

    result = testing.run(spark, build, left=batches(BIDS, *THREE[:2]), right=batches(BIDS, THREE[2], []))
    assert Counter(row.price for row in result.rows("prices_out")) == Counter([10, 20, 30, 5, 7, 1, 8])
    assert {row.auction: row.n for row in result.rows("counts_out")} == {1: 3, 2: 3, 3: 1}


def test_chained_keyed_operators_see_each_others_output(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        counts = bids.key_by("auction").aggregate("counts", n=ms.count())
        counts.key_by("n").aggregate("histogram", auctions=ms.count()).sink("out", ms.sinks.memory())

    result = testing.run(spark, build, bids=batches(BIDS, *THREE))
    # counts emitted: epoch 0: (1,2) (2,1); epoch 1: (1,3); epoch 2: (2,3) (3,1)
    assert {row.n: row.auctions for row in result.rows("out")} == {2: 1, 1: 2, 3: 2}


def test_map_arrow_runs_on_batches_and_casts_to_its_schema(spark: SparkSession) -> None:
    import pyarrow as pa

    def double(incoming: Any) -> Any:
        for batch in incoming:
            yield pa.record_batch({"price": [2 * price.as_py() for price in batch.column("price")]})

    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.map_arrow("double", double, schema="price int").sink("out", ms.sinks.memory())

    result = testing.run(spark, build, bids=batches(BIDS, THREE[0]))
    assert Counter(row.price for row in result.rows("out")) == Counter([20, 40, 60])


class Reminder(ms.KeyedFunction):
    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            ctx.set_event_timer(row.ts + timedelta(seconds=2))
        ctx.set_processing_timer(ctx.now + timedelta(seconds=1))

    def on_timer(self, key: Any, timer: ms.Timer, ctx: ms.Context) -> Any:
        yield key, timer.kind, ctx.epoch


def test_timers_fire_when_watermark_or_clock_reach_them_also_without_rows_of_the_key(
    spark: SparkSession,
) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.with_watermark("ts", "1 second").key_by("auction").process(
            "remind", Reminder(), schema="auction long, kind string, epoch long"
        ).sink("out", ms.sinks.memory())

    inputs = batches(BIDS, [bid(1, "a", 1, 1)], [bid(2, "a", 1, 4)], [bid(3, "a", 1, 5)])
    result = testing.run(spark, build, bids=inputs, end_of_input=True, state=True)
    assert result.state["remind"]["timers"] == []
    # clock: a second per epoch. Watermark in epoch 1: 0 s, in epoch 2: 3 s (timer of key 1), at the end: all.
    assert Counter(map(tuple, result.rows("out"))) == Counter(
        [
            (1, "processing_time", 1),
            (1, "event_time", 2),
            (2, "processing_time", 2),
            (2, "event_time", 3),
            (3, "event_time", 3),
            (3, "processing_time", 3),
        ]
    )


class Seen(ms.KeyedFunction):
    seen = ms.value("boolean", default=False, ttl="3 seconds")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        if not self.seen:
            yield key, ctx.epoch
        self.seen = True


def test_state_with_a_ttl_is_forgotten_and_its_entry_deleted(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.key_by("auction").process("dedup", Seen(), schema="auction long, epoch long").sink(
            "out", ms.sinks.memory()
        )

    one, other = [bid(1, "a", 1)], [bid(9, "a", 1)]
    result = testing.run(spark, build, bids=batches(BIDS, one, one, other, other, other, one, other), state=True)
    assert [tuple(row) for row in result.rows("out") if row.auction == 1] == [(1, 0), (1, 5)]
    quiet = [other] * 6
    result = testing.run(spark, build, bids=batches(BIDS, one, *quiet), state=True)
    assert [row.auction for row in result.state["dedup"]["record"]] == [9]


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_results_do_not_depend_on_the_number_of_slots(spark: SparkSession, slots: int) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        stream = bids.with_watermark("ts", "0 seconds").key_by("auction", "bidder")
        stream.process("last", Latest(), schema="auction long, bidder string, price long, d double", slots=slots).sink(
            "out", ms.sinks.memory()
        )

    many = [[bid(i % 7, "abc"[i % 3], i * 37 % 101, i * 13 % 5) for i in range(e * 40, e * 40 + 40)] for e in range(3)]
    result = testing.run(spark, build, bids=batches(BIDS, *many))
    expected: Counter[Any] = Counter()
    order: dict[Any, list[Any]] = {}
    for epoch in many:
        for auction, bidder, price, ts in epoch:
            order.setdefault((auction, bidder), []).append((ts, price))
        keys = {(a, b) for a, b, _, _ in epoch}
        for key in keys:
            mine = [(ts, price) for a, b, price, ts in epoch if (a, b) == key]
            latest = max(ts for ts, _ in mine)
            expected[(*key, latest)] += 1
    assert Counter((r.auction, r.bidder) for r in result.rows("out")) == Counter(
        (a, b) for (a, b, _), n in expected.items() for _ in range(n)
    )
    assert Counter(result.rows("out")) == Counter(_reference(many))


class Latest(ms.KeyedFunction):
    weighted = ms.value("double", default=0.0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.weighted = self.weighted / 3 + row.price  # depends on the order of rows
        yield key.auction, key.bidder, rows[-1].price, self.weighted


def _reference(epochs: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """The same, in plain Python; rows of one key and time are made unique by price here."""
    state: dict[Any, float] = {}
    out = []
    for epoch in epochs:
        by_key: dict[Any, list[Any]] = {}
        for auction, bidder, price, ts in epoch:
            by_key.setdefault((auction, bidder), []).append((ts, price))
        for key, rows in by_key.items():
            assert len({ts for ts, _ in rows}) == len(rows), "the test's data must have no ties"
            for _, price in sorted(rows):
                state[key] = state.get(key, 0.0) / 3 + price
            out.append((*key, sorted(rows)[-1][1], state[key]))
    return out


def test_the_hottest_key_of_an_operator_is_reported_and_explained(spark: SparkSession) -> None:
    rows = [(7, 1)] * 60 + [(key, 1) for key in range(100, 120)]

    def build(flow: ms.Flow, sold: ms.Stream) -> None:
        sold.key_by("k").aggregate("sums", n=ms.count()).sink("sums_out", ms.sinks.memory())
        sold.key_by("k").process("each", Counted(), schema="k long, n long").sink("each_out", ms.sinks.memory())

    with Live(spark, build, sold="k long, v long") as live:
        live.feed("sold", rows)
        progress = live.progress[-1]
        assert {id: (hot.key, hot.rows, hot.share) for id, hot in progress.hottest.items()} == {
            "sums": ("7", 60, 0.75),
            "each": ("7", 60, 0.75),
        }
        explained = live.job.explain()
    assert "each: 75% of the rows of the newest epoch have the key 7, more than the share of a slot" in explained
    assert explained.startswith(live.job.plan.explain())


def test_a_crash_and_a_failing_task_change_nothing(spark: SparkSession) -> None:
    def build(flow: ms.Flow, bids: ms.Stream) -> None:
        bids.key_by("auction").aggregate("sums", total=ms.sum("price")).sink("out", ms.sinks.memory())

    plain = testing.run(spark, build, bids=batches(BIDS, *THREE), state=True)
    faulty = batches(BIDS, THREE[0], testing.TaskFailure(), THREE[1], testing.Crash(), THREE[2])
    result = testing.run(spark, build, bids=faulty, state=True)
    assert (result.crashes, result.task_failures) == (1, 1)
    assert result.outputs.keys() == plain.outputs.keys()
    assert Counter(result.rows("out")) == Counter(plain.rows("out"))
    assert Counter(result.state["sums"]["record"]) == Counter(plain.state["sums"]["record"])
