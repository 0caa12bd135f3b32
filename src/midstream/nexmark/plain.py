"""The same queries as a user of Spark would write them, in Structured Streaming alone: what ours are measured against.

Queries 4 and 6 are not here: Spark's streaming cannot close an auction at a time of its own without custom state.
Windows of 5, 7 and 8 are emitted once the watermark has passed them; those still open when the events end stay open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Tables:
    """The streams of events, and the sizes of windows in seconds."""

    source: Callable[[str], DataFrame]
    delay: float
    size: float
    slide: float

    def timed(self, table: str) -> DataFrame:
        """A stream with a watermark."""
        return self.source(table).withWatermark("ts", f"{self.delay} seconds")


def q0(tables: Tables) -> DataFrame:
    """All bids, as they are."""
    return tables.source("bid").select("auction", "bidder", "price", "ts")


def q1(tables: Tables) -> DataFrame:
    """All bids, in euros."""
    return tables.source("bid").selectExpr("auction", "bidder", "0.908D * price as price", "ts")


def q2(tables: Tables) -> DataFrame:
    """The bids on some auctions."""
    return tables.source("bid").where("auction % 123 = 0").select("auction", "price")


def q3(tables: Tables) -> DataFrame:
    """Who sells in some states, in one category: an unbounded join of two streams."""
    sold = tables.source("auction").where("category = 10").selectExpr("seller", "id as auction")
    local = tables.source("person").where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    return sold.join(local, sold.seller == local.id).select("name", "city", "state", "auction")


def q5(tables: Tables) -> DataFrame:
    """The auctions with most bids in each sliding window: counted, collected by window, and compared."""
    window = F.window("ts", f"{tables.size} seconds", f"{tables.slide} seconds")
    counts = tables.timed("bid").groupBy(window, "auction").agg(F.count("*").alias("bids"))
    listed = counts.groupBy("window").agg(F.collect_list(F.struct("bids", "auction")).alias("all"))
    best = listed.selectExpr("window", "explode(filter(all, x -> x.bids = array_max(all).bids)) as one")
    return best.selectExpr("one.auction", "one.bids", "window.start as window_start", "window.end as window_end")


def q7(tables: Tables) -> DataFrame:
    """The highest bids of each window: by price, then the highest price."""
    rows = F.collect_list(F.struct("auction", "bidder", "ts")).alias("rows")
    window = F.window("ts", f"{tables.size} seconds")
    priced = tables.timed("bid").groupBy(window, "price").agg(rows)
    best = priced.groupBy(F.window(F.window_time("window"), f"{tables.size} seconds")).agg(
        F.max("price").alias("price"), F.max_by("rows", "price").alias("rows")
    )
    exploded = best.selectExpr("price", "window.start as window_start", "explode(rows) as one")
    return exploded.selectExpr("one.auction", "one.bidder", "price", "one.ts", "window_start")


def q8(tables: Tables) -> DataFrame:
    """Who joined and sold in the same window: a join of two streams by the window, and one row per person."""
    window = F.window("ts", f"{tables.size} seconds")
    joined = tables.timed("person").select("id", "name", window.alias("joined"))
    sold = tables.timed("auction").select("seller", window.alias("sold")).dropDuplicates(["seller", "sold"])
    both = joined.join(sold, (joined.id == sold.seller) & (joined.joined == sold.sold))
    return both.selectExpr("id", "name", "joined.start as window_start")


PLAIN: dict[str, Callable[[Tables], DataFrame]] = {query.__name__: query for query in (q0, q1, q2, q3, q5, q7, q8)}
