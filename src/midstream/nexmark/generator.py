"""The events of an auction site: persons, auctions and bids, each a function of the seed and its number.

Every fifty events are one person, three auctions and forty-six bids, in this order. All values are made in the JVM
from `xxhash64(seed, event, a salt per field)`, so any slice of the events can be generated anywhere, always the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from midstream.errors import PlanError
from midstream.nexmark.slices import write_slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUND = 50  # events; the first is a person, then come AUCTIONS auctions, the others are bids
AUCTIONS = 3
FIRST_ID = 1000  # of persons and of auctions
CATEGORIES = (10, 11, 12, 13, 14)
HOT_EVERY = 100  # the hot auction, seller and bidder are those whose number is a multiple of this, or follows one
OPEN_AUCTIONS, AUCTIONS_TO_COME = 100, 10  # what a bid that is not hot may be for
ACTIVE_PERSONS, PERSONS_TO_COME = 1000, 10  # who may sell and bid besides the hot ones
STEP = 953  # distance within a group of two events that follow each other in the stream

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")

# The mean size of a row in bytes: eight for each number and time, one for each character.
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100


@dataclass(frozen=True, slots=True)
class Config:
    """Which events: two equal configurations give the same ones, in the same order.

    Event n happens at `start` + n / `events_per_second`, in whole microseconds. Position n of the stream holds event
    n - n % g + (n % g) * 953 % g, where g is `out_of_order`: in every g positions the same g events, in another order.

    Not promised: that the first n positions hold the first n events, unless n is a multiple of g.

    >>> [Config(out_of_order=4).event_at(position) for position in range(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> [Config(out_of_order=5).event_at(position) for position in range(10)]
    [0, 3, 1, 4, 2, 5, 8, 6, 9, 7]
    >>> Config(out_of_order=953)
    Traceback (most recent call last):
        ...
    midstream.errors.PlanError: out_of_order is 953, but must not be a multiple of 953: events would be lost and doubled
    """

    seed: int = 0
    out_of_order: int = 1  # 1: in order
    events_per_second: int = 10_000
    start: int = 1_767_225_600_000_000  # microseconds since 1970: 2026-01-01T00:00:00Z

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise PlanError(f"the seed is {self.seed}, but must be in [0, 2^63)")
        if self.events_per_second < 1:
            raise PlanError(f"events_per_second is {self.events_per_second}, but must be 1 or more")
        if self.out_of_order < 1:
            raise PlanError(f"out_of_order is {self.out_of_order}, but must be 1 (in order) or more")
        if math.gcd(STEP, self.out_of_order) != 1:
            raise PlanError(
                f"out_of_order is {self.out_of_order}, but must not be a multiple of {STEP}: "
                "events would be lost and doubled"
            )

    def event_at(self, position: int) -> int:
        """Return the event at a position of the stream."""
        within = position % self.out_of_order
        return position - within + within * STEP % self.out_of_order


def persons(ids: DataFrame, config: Config) -> DataFrame:
    """Return the persons among the events at positions `id`: `id, name, email, credit_card, city, state, ts, extra`.

    Works on batches and streams, and keeps the positions' order within a partition. Ids count up from 1000.
    """
    value = _Values(config.seed)
    address = value.digits("email")
    rows = _events(ids, config, "event % 50 = 0").selectExpr(
        f"{FIRST_ID}L + last_person as id",
        f"concat({value.one_of('first name', FIRST_NAMES)}, ' ', {value.one_of('last name', LAST_NAMES)}) as name",
        f"concat(left({address}, 7), '@', right({address}, 5), '.example') as email",
        f"concat_ws(' ', {', '.join(value.four_digits(f'card {part}') for part in range(4))}) as credit_card",
        f"{value.one_of('city', CITIES)} as city",
        f"{value.one_of('state', STATES)} as state",
        "timestamp_micros(micros) as ts",
        "event",
    )
    return _padded(rows, value, PERSON_BYTES, numbers=2, texts=("name", "email", "credit_card", "city", "state"))


def auctions(ids: DataFrame, config: Config) -> DataFrame:
    """Return the auctions among the events at the positions `id`.

    Their columns are `id, item, description, initial_bid, reserve, ts, expires, seller, category, extra`. Works on
    batches and streams. Ids count up from 1000. An auction lasts 1 ms and up to twice the time in which 100 more begin.

    Not promised: that the seller has joined before, or ever does in a stream that ends: up to ten are still to join.
    """
    value = _Values(config.seed)
    longest = max(1, 2 * (OPEN_AUCTIONS * ROUND // AUCTIONS) * 1_000_000 // config.events_per_second)
    seller = f"if({value.below('hot seller', 4)} > 0, {_hot('last_person')}, {_active_person(value, 'seller')})"
    rows = _events(ids, config, "event % 50 between 1 and 3").selectExpr(
        f"{FIRST_ID}L + last_auction as id",
        f"concat('item ', {value.digits('item')}) as item",
        f"repeat({value.digits('description')}, 6) as description",
        f"{value.price('initial bid')} as initial_bid",
        f"{value.price('initial bid')} + {value.price('reserve')} as reserve",
        "timestamp_micros(micros) as ts",
        f"timestamp_micros(micros + 1000L + {value.below('expires', longest)}) as expires",
        f"{FIRST_ID}L + {seller} as seller",
        f"{CATEGORIES[0]}L + {value.below('category', len(CATEGORIES))} as category",
        "event",
    )
    return _padded(rows, value, AUCTION_BYTES, numbers=7, texts=("item", "description"))


def bids(ids: DataFrame, config: Config) -> DataFrame:
    """Return the bids among the events at the positions `id`: `auction, bidder, price, channel, url, ts, extra`.

    Works on batches and streams. Half of them are for the hot auction.

    Not promised: that the auction has begun or is still open, or that the bidder has joined.
    """
    value = _Values(config.seed)
    live = f"least(last_auction + 1L, {OPEN_AUCTIONS}L)"
    any_auction = f"last_auction + 1L - {live} + {value.below('auction', f'({live} + {AUCTIONS_TO_COME}L)')}"
    auction = f"if({value.below('hot auction', 2)} > 0, {_hot('last_auction')}, {any_auction})"
    bidder = f"if({value.below('hot bidder', 4)} > 0, {_hot('last_person')} + 1L, {_active_person(value, 'bidder')})"
    rows = _events(ids, config, "event % 50 >= 4").selectExpr(
        f"{FIRST_ID}L + {auction} as auction",
        f"{FIRST_ID}L + {bidder} as bidder",
        f"{value.price('price')} as price",
        f"{value.one_of('channel', CHANNELS)} as channel",
        f"concat('https://auctions.example/', left({value.digits('url')}, 8)) as url",
        "timestamp_micros(micros) as ts",
        "event",
    )
    return _padded(rows, value, BID_BYTES, numbers=4, texts=("channel", "url"))


def bounded(spark: SparkSession, directory: str | os.PathLike[str], events: int, rows_per_epoch: int = 0) -> DataFrame:
    """Return the positions 0 to `events` - 1 as a stream that ends: column `id`, for `Trigger.AvailableNow`.

    Promised: every micro-batch holds exactly the next `rows_per_epoch` positions (the last one what is left; 0: all in
    one), in every run and after every crash. The slices are named in small files in `directory`, a local directory that
    is made if it does not exist; calling this again with the same numbers uses them as they are.

    Not promised: an order of rows within a micro-batch.
    """
    at_once = write_slices(directory, events, rows_per_epoch, spark.sparkContext.defaultParallelism)
    files = spark.readStream.schema("start long, end long").option("mode", "FAILFAST")
    files = files.option("maxFilesPerTrigger", at_once).option("latestFirst", False)
    return files.json(os.path.abspath(directory)).selectExpr("explode(sequence(start, end - 1)) as id")


def live(spark: SparkSession, rate: int) -> DataFrame:
    """Return positions as a stream without end, `rate` of them per second: column `id`.

    Not promised: that the time of an event is the time of day; for that set `start` and `events_per_second`.
    """
    source = spark.readStream.format("rate").option("rowsPerSecond", rate)
    return source.load().selectExpr("value as id")


TABLES = {"person": persons, "auction": auctions, "bid": bids}


def generate(
    spark: SparkSession,
    out: str | os.PathLike[str],
    events: int,
    config: Config,
    begin: Callable[[str], None] = lambda table: None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the events at positions 0 to `events` - 1 as Parquet, into the folders `person`, `auction` and `bid`.

    Times are written in microseconds of UTC; `begin` is called with the name of each folder before it is written. Where
    `columns` are given, tables have only these, and those that are not named have no rows. A folder that exists already
    is an error of Spark's, and is left as it is.
    """
    if events < 0:
        raise PlanError(f"{events} events cannot be generated: the number must be 0 or more")
    session = spark.newSession()  # settings of its own
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    parts = max(session.sparkContext.defaultParallelism, events // 250_000)
    for name, rows in TABLES.items():
        begin(name)
        is_wanted = columns is None or name in columns
        made = rows(session.range(0, events, 1, parts) if is_wanted else session.range(0, 0, 1, 1), config)
        if columns and is_wanted:
            made = made.select(*columns[name])
        made.write.parquet(os.path.join(os.path.abspath(out), name))


@dataclass(frozen=True, slots=True)
class _Values:
    """SQL of values drawn for the column `event`: each name has a value of its own, always the same."""

    seed: int

    def hash(self, name: str) -> str:
        """64 bits."""
        return f"xxhash64({self.seed}L, event, {crc32(name.encode())}L)"

    def below(self, name: str, bound: int | str) -> str:
        """A long in [0, bound), uniform."""
        return f"pmod({self.hash(name)}, {bound if isinstance(bound, str) else f'{bound}L'})"

    def price(self, name: str) -> str:
        """A price from 100 to 100 000 000, its logarithm uniform."""
        uniform = f"shiftrightunsigned({self.hash(name)}, 11) / 9007199254740992D"
        return f"cast(round(power(10D, 6D * {uniform}) * 100D) as long)"

    def one_of(self, name: str, words: tuple[str, ...]) -> str:
        """One of some words, each as often as the others."""
        listed = ", ".join(f"'{word}'" for word in words)
        return f"element_at(array({listed}), cast({self.below(name, len(words))} + 1L as int))"

    def digits(self, name: str) -> str:
        """A word of sixteen hexadecimal digits."""
        return f"lpad(lower(hex({self.hash(name)})), 16, '0')"

    def four_digits(self, name: str) -> str:
        """A word of four decimal digits."""
        return f"lpad(cast({self.below(name, 10_000)} as string), 4, '0')"


def _events(ids: DataFrame, config: Config, of_kind: str) -> DataFrame:
    """Return the columns that all kinds of events are generated from; `last_person`, `last_auction` count from 0."""
    group = f"{config.out_of_order}L"
    event = "id" if config.out_of_order == 1 else f"id - id % {group} + id % {group} * {STEP}L % {group}"
    return (
        ids.selectExpr(f"{event} as event")
        .where(of_kind)
        .selectExpr(
            "event",
            f"event div {ROUND} as last_person",
            f"event div {ROUND} * {AUCTIONS}L + least(event % {ROUND}, {AUCTIONS}L) - 1L as last_auction",
            f"{config.start}L + event * 1000000L div {config.events_per_second}L as micros",
        )
    )


def _hot(last: str) -> str:
    return f"{last} div {HOT_EVERY} * {HOT_EVERY}L"


def _active_person(value: _Values, name: str) -> str:
    active = f"least(last_person + 1L, {ACTIVE_PERSONS}L)"
    return f"last_person + 1L - {active} + {value.below(name, f'({active} + {PERSONS_TO_COME}L)')}"


def _padded(rows: DataFrame, value: _Values, mean: int, numbers: int, texts: tuple[str, ...]) -> DataFrame:
    """Add `extra`: what is missing to the mean size, a fifth more or less; `event` is dropped."""
    lacking = f"greatest(0, {mean - 8 * numbers} - {' - '.join(f'length({text})' for text in texts)})"
    length = f"cast({lacking} * (800L + {value.below('length', 401)}) div 1000L as int)"
    filling = f"repeat({value.digits('extra')}, {mean // 13 + 1})"  # at most 6/5 of the mean, in words of sixteen
    return rows.selectExpr("*", f"left({filling}, {length}) as extra").drop("event")
