"""The events of Nexmark: the same in every run and every slice, in the proportions of the benchmark, none lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from midstream.errors import PlanError
from midstream.nexmark import generator
from midstream.nexmark.generator import Config
from midstream.nexmark.slices import ABOUT

Kind = Callable[[DataFrame, Config], DataFrame]
KINDS = (generator.persons, generator.auctions, generator.bids)
EVENTS = 100_000
TYPES = {
    "persons": "id bigint, name string, email string, credit_card string, city string, state string, ts timestamp, "
    "extra string",
    "auctions": "id bigint, item string, description string, initial_bid bigint, reserve bigint, ts timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string",
    "bids": "auction bigint, bidder bigint, price bigint, channel string, url string, ts timestamp, extra string",
}


def one(rows: DataFrame, *expressions: str) -> Any:
    """Compute aggregates over all rows."""
    return rows.selectExpr(*expressions).first()


def drain(ids: DataFrame, checkpoint: Path) -> list[list[int]]:
    """Run a bounded stream to its end: the positions of each micro-batch."""
    seen: list[list[int]] = []

    def note(batch: DataFrame, _: int) -> None:
        seen.append(sorted(row.id for row in batch.collect()))

    query = ids.writeStream.foreachBatch(note).trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination(120)
    return seen


# --- the same everywhere --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_slice_made_alone_is_that_slice_of_the_whole(spark: SparkSession, kind: Kind) -> None:
    config = Config(seed=3, out_of_order=7)
    whole = kind(spark.range(0, 2100, 1, 1), config).collect()
    slices = [kind(spark.range(first, first + 700, 1, 3), config).collect() for first in (0, 700, 1400)]
    assert whole == [row for rows in slices for row in rows]
    assert whole != kind(spark.range(0, 2100, 1, 1), Config(seed=4, out_of_order=7)).collect()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_columns_are_those_of_the_benchmark(spark: SparkSession, kind: Kind) -> None:
    columns = kind(spark.range(1), Config()).schema.fields
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns) == TYPES[kind.__name__]


def test_the_first_events_never_change(spark: SparkSession) -> None:
    ids, config = spark.range(0, 50, 1, 1), Config(seed=7)
    person, *_ = generator.persons(ids, config).drop("ts", "extra").collect()
    assert tuple(person) == (
        1000, "Peter Bartels", "0bf246c@305ec.example", "4708 5506 8231 2160", "Bend", "ID"
    )  # fmt: skip
    auctions = generator.auctions(ids, config).select("id", "initial_bid", "reserve", "seller", "category").collect()
    assert [tuple(row) for row in auctions] == [
        (1000, 265_101, 12_885_492, 1000, 13),
        (1001, 106, 624, 1000, 12),
        (1002, 68_590_999, 69_585_819, 1006, 12),
    ]
    bids = generator.bids(ids, config).selectExpr("auction", "bidder", "price", "unix_micros(ts)").take(2)
    start = 1_767_225_600_000_000
    assert [tuple(row) for row in bids] == [(1000, 1001, 3_761, start + 400), (1002, 1001, 23_740, start + 500)]


# --- proportions ----------------------------------------------------------------------------------------------------


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(spark: SparkSession) -> None:
    ids = spark.range(0, EVENTS)
    assert [kind(ids, Config()).count() for kind in KINDS] == [EVENTS // 50, EVENTS // 50 * 3, EVENTS // 50 * 46]
    for kind in KINDS[:2]:  # ids count up from 1000
        rows = kind(ids, Config())
        assert tuple(one(rows, "min(id)", "max(id) - count(1)", "count(distinct id) - count(1)")) == (1000, 999, 0)


def test_hot_auctions_sellers_and_bidders_have_their_share(spark: SparkSession) -> None:
    # The hot one may also be drawn by the others: 1 of 110 auctions, 1 of 1010 persons once there are so many.
    ids = spark.range(50_000, 50_000 + EVENTS)
    bids = generator.bids(ids, Config())
    event = "(unix_micros(ts) - 1767225600000000) div 100"
    last_auction, last_person = f"({event} div 50 * 3 + least({event} % 50, 3) - 1)", f"({event} div 50)"
    auction, bidder = one(
        bids,
        f"avg(if(auction = 1000 + {last_auction} div 100 * 100, 1, 0))",
        f"avg(if(bidder = 1000 + {last_person} div 100 * 100 + 1, 1, 0))",
    )
    (seller,) = one(generator.auctions(ids, Config()), f"avg(if(seller = 1000 + {last_person} div 100 * 100, 1, 0))")
    assert auction == pytest.approx(0.5 + 0.5 / 110, abs=0.01)
    assert bidder == pytest.approx(0.75 + 0.25 / 1010, abs=0.01)
    assert seller == pytest.approx(0.75 + 0.25 / 1010, abs=0.02)


def test_what_is_referred_to_is_there_or_soon_to_come(spark: SparkSession) -> None:
    bids = generator.bids(spark.range(0, EVENTS), Config(seed=1))
    event = "(unix_micros(ts) - 1767225600000000) div 100"
    auction = f"(1000 + {event} div 50 * 3 + 2)"  # the last one when a bid is made
    person = f"(1000 + {event} div 50)"
    ranges = one(
        bids,
        "min(auction) >= 1000 and min(bidder) >= 1000",
        f"bool_and(auction between {auction} - 99 and {auction} + 10)",
        f"max(auction - {auction}) = 10",
        f"min(auction - {auction}) = -99",
        f"bool_and(bidder between {person} - 999 and {person} + 10)",
    )
    assert all(ranges), ranges
    sellers = one(
        generator.auctions(spark.range(0, EVENTS), Config(seed=1)),
        "min(seller) >= 1000",
        f"bool_and(seller between {person} - 999 and {person} + 10)",
        "bool_and(reserve > initial_bid)",
        "min(category) = 10 and max(category) = 14",
        "min(unix_micros(expires) - unix_micros(ts)) between 1000 and 2000",
        # 100 auctions take 1666 events of 100 µs
        "max(unix_micros(expires) - unix_micros(ts)) between 330000 and 334200",
    )
    assert all(sellers), sellers


def test_prices_have_a_uniform_logarithm(spark: SparkSession) -> None:
    prices = one(generator.bids(spark.range(0, EVENTS), Config()), "min(price)", "max(price)", "avg(log10(price))")
    assert 100 <= prices[0] < 101
    assert 99_000_000 < prices[1] <= 100_000_000
    assert prices[2] == pytest.approx(5, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "numbers", "mean"),
    [(generator.persons, 2, 200), (generator.auctions, 7, 500), (generator.bids, 4, 100)],
    ids=["persons", "auctions", "bids"],
)
def test_rows_have_their_mean_size(spark: SparkSession, kind: Kind, numbers: int, mean: int) -> None:
    rows = kind(spark.range(0, EVENTS), Config())
    texts = " + ".join(f"length({name})" for name, type in rows.dtypes if type == "string")
    assert one(rows, f"avg({texts} + {8 * numbers})")[0] == pytest.approx(mean, rel=0.01)


# --- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 2, 50, 952, 954, 1000])
def test_out_of_order_is_the_same_events_in_another_order(spark: SparkSession, group: int) -> None:
    positions = 3 * group
    config = Config(out_of_order=group)
    for first in range(0, positions, group):
        assert sorted(map(config.event_at, range(first, first + group))) == list(range(first, first + group))
    ids = spark.range(0, positions, 1, 1)
    times = [row[0] for kind in KINDS for row in kind(ids, config).selectExpr("unix_micros(ts)").collect()]
    assert sorted(times) == [config.start + 100 * event for event in range(positions)]
    bids = [row[0] for row in generator.bids(ids, config).selectExpr("unix_micros(ts)").collect()]
    assert bids == [config.start + 100 * n for n in map(config.event_at, range(positions)) if n % 50 >= 4]


@pytest.mark.parametrize(
    "values",
    [{"out_of_order": 953}, {"out_of_order": 1906}, {"out_of_order": 0}, {"events_per_second": 0}, {"seed": -1}],
    ids=str,
)
def test_a_configuration_that_would_lose_events_is_refused(values: dict[str, int]) -> None:
    (name,) = values
    with pytest.raises(PlanError, match=name):
        Config(**values)


# --- as a stream ----------------------------------------------------------------------------------------------------


def test_a_bounded_stream_gives_each_slice_in_its_turn(spark: SparkSession, tmp_path: Path) -> None:
    seen = drain(generator.bounded(spark, tmp_path / "slices", 25, 10), tmp_path / "checkpoint")
    assert seen == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


def test_a_slice_is_shared_by_tasks_and_still_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    ids = generator.bounded(spark, tmp_path / "slices", 40_001, 20_000)
    assert len(list((tmp_path / "slices").glob("slice-*.json"))) == 3 * 2, "of the last two, one is empty"
    assert drain(ids, tmp_path / "checkpoint") == [list(range(20_000)), list(range(20_000, 40_000)), [40_000]]


def test_without_a_number_of_rows_all_is_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    ids = generator.bounded(spark, tmp_path / "slices", 10_001)
    assert drain(ids, tmp_path / "checkpoint") == [list(range(10_001))]


def test_a_run_that_was_killed_goes_on_with_the_next_slice(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def fail(batch: DataFrame, number: int) -> None:
        if number == 2:
            raise ValueError("killed")
        seen.append(sorted(row.id for row in batch.collect()))

    ids = generator.bounded(spark, tmp_path / "slices", 100, 20)
    query = ids.writeStream.foreachBatch(fail).trigger(availableNow=True)
    with pytest.raises(PySparkException, match="killed"):
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    for file in (tmp_path / "slices").iterdir():
        file.touch()  # as if the directory had been copied
    seen += drain(generator.bounded(spark, tmp_path / "slices", 100, 20), tmp_path / "checkpoint")
    assert seen == [list(range(first, first + 20)) for first in range(0, 100, 20)]


def test_the_order_of_slices_is_the_order_of_their_times(spark: SparkSession, tmp_path: Path) -> None:
    generator.bounded(spark, tmp_path / "slices", 1_000_000, 1000)
    files = sorted(file for file in (tmp_path / "slices").iterdir() if file.name != ABOUT)
    assert len(files) == 1000
    assert all(after.stat().st_mtime - before.stat().st_mtime == 1 for before, after in pairwise(files))


def test_slices_of_another_run_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    generator.bounded(spark, tmp_path / "slices", 100, 20)
    with pytest.raises(PlanError, match="100 events in epochs of 20, not 100 in epochs of 25"):
        generator.bounded(spark, tmp_path / "slices", 100, 25)
    (tmp_path / "slices" / "slice-000000003.json").unlink()
    with pytest.raises(PlanError, match=r"lost 1 files, slice-000000003\.json first"):
        generator.bounded(spark, tmp_path / "slices", 100, 20)
    with pytest.raises(PlanError, match="is not a directory of slices"):
        generator.bounded(spark, tmp_path, 100, 20)
    assert [entry.name for entry in tmp_path.iterdir()] == ["slices"]


def test_events_come_out_of_a_stream_as_out_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    config, found = Config(out_of_order=9), Counter[Any]()

    def note(batch: DataFrame, _: int) -> None:
        found.update(batch.collect())

    bids = generator.bids(generator.bounded(spark, tmp_path / "slices", 500, 200), config)
    query = bids.writeStream.foreachBatch(note).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    assert found == Counter(generator.bids(spark.range(500), config).collect())


@pytest.mark.parametrize("shared", [True, False], ids=["one source", "a source each"])
def test_the_kinds_of_event_advance_together(spark: SparkSession, tmp_path: Path, shared: bool) -> None:
    seen: list[tuple[int, ...]] = []

    def note(batch: DataFrame, _: int) -> None:
        counts = Counter(row.kind for row in batch.collect())
        seen.append(tuple(counts[kind] for kind in generator.TABLES))

    ids = [generator.bounded(spark, tmp_path / "slices", 250, 100) for _ in generator.TABLES]
    person, auction, bid = (
        make(ids[0] if shared else mine, Config()).selectExpr(f"'{kind}' as kind")
        for mine, (kind, make) in zip(ids, generator.TABLES.items(), strict=True)
    )
    query = person.union(auction).union(bid).writeStream.foreachBatch(note).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    assert seen == [(2, 6, 92), (2, 6, 92), (1, 3, 46)]


def test_a_live_stream_counts_from_zero(spark: SparkSession) -> None:
    stream = generator.bids(generator.live(spark, 1000), Config())
    assert stream.isStreaming
    assert generator.live(spark, 1000).columns == ["id"]


# --- as files -------------------------------------------------------------------------------------------------------


def test_generated_files_hold_all_events(spark: SparkSession, tmp_path: Path) -> None:
    config, before = Config(seed=5), spark.conf.get("spark.sql.parquet.outputTimestampType")
    generator.generate(spark, tmp_path / "data", 1000, config)
    counts = {name: pq.read_table(tmp_path / "data" / name).num_rows for name in ("person", "auction", "bid")}
    assert counts == {"person": 20, "auction": 60, "bid": 920}
    bids = pq.read_table(tmp_path / "data" / "bid")
    assert str(bids.schema.field("ts").type) == "timestamp[us, tz=UTC]"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    again = spark.read.parquet(str(tmp_path / "data" / "bid"))
    assert Counter(again.collect()) == Counter(generator.bids(spark.range(1000), config).collect())
