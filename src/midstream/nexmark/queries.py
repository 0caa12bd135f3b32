"""The queries of Nexmark, written with the names of `import midstream as ms` only.

Each takes the streams it needs and returns the stream of its results; `docs/nexmark.md` says what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import midstream as ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Events:
    """The streams of events, each made when a query asks for it, and the sizes of windows."""

    flow: ms.Flow
    source: Callable[[str], DataFrame]  # of a table: person, auction, bid
    delay: float = 0.0  # seconds by which events are out of order
    size: float = 10.0
    slide: float = 2.0
    slots: int = 0

    def persons(self, *columns: str) -> ms.Stream:
        """Who joined; name only the columns that are needed: others are not generated."""
        return self._stream("person", columns)

    def auctions(self, *columns: str) -> ms.Stream:
        """What is sold."""
        return self._stream("auction", columns)

    def bids(self, *columns: str) -> ms.Stream:
        """What is offered."""
        return self._stream("bid", columns)

    def _stream(self, table: str, columns: Sequence[str]) -> ms.Stream:
        return self.flow.source(table, self.source(table).select(*columns, "ts")).with_watermark("ts", self.delay)


def q0(events: Events) -> ms.Stream:
    """All bids, as they are."""
    return events.bids("auction", "bidder", "price").transform(
        "q0", lambda df: df.select("auction", "bidder", "price", "ts")
    )


def q1(events: Events) -> ms.Stream:
    """All bids, in euros."""
    return events.bids("auction", "bidder", "price").transform(
        "q1", lambda df: df.selectExpr("auction", "bidder", "0.908D * price as price", "ts")
    )


def q2(events: Events) -> ms.Stream:
    """The bids on some auctions."""
    bids = events.bids("auction", "price")
    return bids.transform("q2", lambda df: df.where("auction % 123 = 0").select("auction", "price"))


def q3(events: Events) -> ms.Stream:
    """Who sells in some states, in one category: an unbounded join, since a person may join after selling."""
    sold = events.auctions("id", "seller", "category").transform(
        "sold", lambda df: df.where("category = 10").selectExpr("seller", "id as auction")
    )
    local = events.persons("id", "name", "city", "state").transform(
        "local", lambda df: df.where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    )
    joined = sold.key_by("seller").join("sellers", local.key_by("id"), slots=events.slots)
    return joined.transform("q3", lambda df: df.select("name", "city", "state", "auction"))


def q4(events: Events) -> ms.Stream:
    """The mean winning price of each category."""
    return winners(events).key_by("category").aggregate("q4", price=ms.mean("price"), slots=events.slots)


def q5(events: Events) -> ms.Stream:
    """The auctions with most bids in each sliding window."""
    windows = events.bids("auction").key_by("auction").window(ms.sliding(events.size, events.slide))
    hottest = windows.aggregate("counts", bids=ms.count(), slots=events.slots).top("hottest", by="bids")
    return hottest.transform("q5", lambda df: df.select("auction", "bids", "window_start", "window_end"))


def q6(events: Events) -> ms.Stream:
    """The mean winning price of each seller's last ten auctions, in the order of their closing."""
    return (
        winners(events)
        .key_by("seller")
        .process("q6", LastTen(), schema="seller long, price double", order_by=("expires", "auction"))
    )


def q7(events: Events) -> ms.Stream:
    """The highest bids of each window."""
    best = (
        events.bids("auction", "bidder", "price")
        .window(ms.tumbling(events.size))
        .top("best", by="price", slots=events.slots)
    )
    return best.transform("q7", lambda df: df.select("auction", "bidder", "price", "ts", "window_start"))


def q8(events: Events) -> ms.Stream:
    """Who joined and sold in the same window."""
    size = events.size
    joined = events.persons("id", "name")
    new = joined.key_by("id").join(
        "new",
        events.auctions("seller").key_by("seller"),
        how="semi",
        within=ms.tumbling(size),
        slots=events.slots,
    )
    start = f"timestamp_micros(unix_micros(ts) - pmod(unix_micros(ts), {round(size * 1e6)}L)) as window_start"
    return new.transform("q8", lambda df: df.selectExpr("id", "name", start))


QUERIES: dict[str, Callable[[Events], ms.Stream]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8)
}


def winners(events: Events) -> ms.Stream:
    """Closed auctions with the best bid in their time; those without one are not emitted."""
    auctions = events.auctions("id", "expires", "seller", "category").transform(
        "offers",
        lambda df: df.selectExpr("id as auction", "ts", "expires", "seller", "category", "null::long as price"),
    )
    bids = events.bids("auction", "price").transform(
        "prices",
        lambda df: df.selectExpr(
            "auction",
            "ts",
            "null :: timestamp as expires",
            "null::long as seller",
            "null::long as category",
            "price",
        ),
    )
    schema = "auction long, expires timestamp, seller long, category long, price long"
    both = auctions.union("both", bids)
    return both.key_by("auction").process("winners", Winner(), schema=schema, slots=events.slots)


class Winner(ms.KeyedFunction):
    """Finds the best bid of an auction, and emits it when the watermark has passed the end of the auction."""

    begins = ms.value("timestamp")
    expires = ms.value("timestamp")
    seller = ms.value("long")
    category = ms.value("long")
    best = ms.value("long")
    early = ms.map("timestamp", "long")  # bids that came before their auction: time -> best price

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> None:
        """Take the auction and its bids, in whichever order they come."""
        for row in rows:
            if row.expires is not None:
                self.begins, self.expires, self.seller, self.category = row.ts, row.expires, row.seller, row.category
                ctx.set_event_timer(row.expires + timedelta(microseconds=1))  # a bid in the last moment counts
        bids = [(row.ts, row.price) for row in rows if row.expires is None]
        if self.expires is None:
            for at, price in bids:
                self.early[at] = max(price, self.early.get(at, price))
                ctx.set_event_timer(at + timedelta(microseconds=1))  # its auction would have come by then
            return
        bids += self.early.items()
        self.early.clear()
        valid = [price for at, price in bids if self.begins <= at <= self.expires]
        if valid:
            self.best = max(valid) if self.best is None else max(self.best, *valid)

    def on_timer(self, key: int, timer: ms.Timer, ctx: ms.Context) -> Iterable[tuple[Any, ...]]:
        """Close the auction, or forget a bid whose auction did not come in time."""
        if self.expires is None:
            self.early.pop(timer.at - timedelta(microseconds=1), None)
        elif timer.at > self.expires:
            if self.best is not None:
                yield key, self.expires, self.seller, self.category, self.best
            self.begins = self.expires = self.seller = self.category = self.best = None


class LastTen(ms.KeyedFunction):
    """The mean of the last ten prices, whenever a new one comes."""

    prices = ms.value("array<long>")

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterable[tuple[Any, ...]]:
        """Emit the mean after the rows of an epoch."""
        self.prices = [*(self.prices or ()), *(row.price for row in rows)][-10:]
        yield key, sum(self.prices) / len(self.prices)
