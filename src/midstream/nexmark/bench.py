"""Events per second of every query, as ours and as plain Structured Streaming, where Spark can express it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from midstream.bench import machine
from midstream.bench.latency import epochs_of
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.workbench import Workbench, pause, workbench
from midstream.errors import PlanError
from midstream.nexmark import generator
from midstream.nexmark.comparison import compared
from midstream.nexmark.generator import Config
from midstream.nexmark.oracle import expected
from midstream.nexmark.plain import PLAIN, Tables
from midstream.nexmark.queries import QUERIES
from midstream.nexmark.running import QueryRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TIMED_REGION = (
    "epochs as Spark reports them (durationMs.triggerExecution), generating the events and writing the results as "
    "Parquet included. Left out: starting and stopping, the first third of the epochs, the check of the results"
)
OURS, PLAINLY = "midstream", "plain"
READS = {"q3": ("person", "auction"), "q4": ("auction", "bid"), "q6": ("auction", "bid"), "q8": ("person", "auction")}
COLUMNS = {
    "person": ("id", "name", "city", "state", "ts"),
    "auction": ("id", "ts", "expires", "seller", "category"),
    "bid": ("auction", "bidder", "price", "ts"),
}  # what the queries read

# Events in an epoch: about a second's work for us on two cores, as in a job under full load that is triggered every
# second. (`q2` would have fifty million.)
PER_EPOCH = {
    "q0": 1_000_000, "q1": 1_000_000, "q2": 5_000_000, "q3": 6_000_000, "q4": 150_000, "q5": 500_000, "q6": 150_000,
    "q7": 500_000, "q8": 3_000_000,
}  # fmt: skip
_EPOCHS = 9

Data = tuple[int, tuple[str, ...]]  # how many events, and which tables of them


@dataclass(frozen=True, slots=True)
class Load:
    """The events of a run: how many there are, and in an epoch; and the streams that are read."""

    events: int
    per_epoch: int
    tables: tuple[str, ...]

    @classmethod
    def of(cls, query: str, events: int, per_epoch: int) -> Load:
        """The events of a query; 0 means a default number."""
        per_epoch = per_epoch or PER_EPOCH[query]
        return cls(events or _EPOCHS * per_epoch, per_epoch, READS.get(query, ("bid",)))

    @property
    def data(self) -> Data:
        """What is generated for it."""
        return self.events, self.tables


@dataclass(slots=True)
class QueryRates:
    """The rates of one query, a round each."""

    query: str
    rates: dict[str, list[float]] = field(default_factory=dict)  # contestant -> events per second

    @property
    def ratios(self) -> list[float]:
        """How much faster ours was, round by round: the two runs of a round follow each other."""
        return [ours / plain for ours, plain in zip(self.rates[OURS], self.rates.get(PLAINLY, ()), strict=False)]

    @property
    def ratio(self) -> float | None:
        """The median of the rounds; `None` where there is nothing to compare with.

        >>> QueryRates("q0", {"midstream": [1.0, 4.0], "plain": [2.0, 2.0]}).ratio
        1.25
        """
        return median(self.ratios) if self.ratios else None

    def result(self, load: Load) -> dict[str, Any]:
        """Return what is recorded of it."""
        return {
            "query": self.query,
            "events": load.events,
            "rows_per_epoch": load.per_epoch,
            **{name: round(median(rates)) for name, rates in self.rates.items()},
            "rates": {name: [round(rate) for rate in rates] for name, rates in self.rates.items()},
            "ratios": [round(ratio, 2) for ratio in self.ratios],
            "ratio": None if self.ratio is None else round(self.ratio, 2),
        }


def run(
    queries: Sequence[str] = tuple(QUERIES),
    events: int = 0,
    rows_per_epoch: int = 0,
    rounds: int = 4,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure queries, print a table, return the record.

    Promised: every result of every round is compared with DuckDB's, and no figure is printed unless all agree; the
    order rotates from round to round. Not promised: figures of a machine that does something else meanwhile.
    Windows of Spark that are still open when the events end are not expected: Spark has no end of input.

    Args:
        queries: which.
        events: how many; 0: nine epochs of them.
        rows_per_epoch: events in an epoch; 0: about a second's work.
        rounds: how often each is run, the median counts; with an even number each comes first as often as the other.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(rounds=rounds)
    unknown = [query for query in queries if query not in QUERIES]
    if unknown:
        raise PlanError(f"{unknown[0]!r} is not a query of Nexmark; they are {', '.join(QUERIES)}")
    config = Config(events_per_second=10_000)
    found = [QueryRates(query) for query in queries]
    loads = {query: Load.of(query, events, rows_per_epoch) for query in queries}
    with workbench() as bench:
        data = _generated(bench, loads.values(), config, echo)
        bench.spark.conf.set("spark.sql.shuffle.partitions", str(bench.cores))
        for number in range(rounds):
            for one in found[number % len(found) :] + found[: number % len(found)]:
                names = [OURS, PLAINLY] if one.query in PLAIN else [OURS]
                for name in names if number % 2 == 0 else names[::-1]:
                    echo(f"round {number + 1} of {rounds}: {one.query}, {name}")
                    measure, load = _ours if name == OURS else _plainly, loads[one.query]
                    rate = measure(bench, one.query, load.events, load.per_epoch, config, data[load.data])
                    one.rates.setdefault(name, []).append(rate)
        about = machine.describe(bench.spark)
    record = {
        "checked": True, "rounds": rounds, "results": [one.result(loads[one.query]) for one in found],
        "machine": about, "timed_region": TIMED_REGION,
    }  # fmt: skip
    echo(rendered(_table(record), "All results agree with DuckDB's.", f"Timed: {TIMED_REGION}."))
    if json is not None:
        save(record, json)
    return record


def _generated(
    bench: Workbench, loads: Iterable[Load], config: Config, echo: Callable[[str], object]
) -> dict[Data, Path]:
    """Write the events that queries read, to compare with; those that several read once."""
    data = dict[Data, Path]()
    for load in loads:
        if load.data not in data:
            data[load.data] = Path(bench.directory, f"data-{len(data)}")
            echo(f"generating {load.events:,} events, of which {' and '.join(load.tables)} are read")
            columns = {table: COLUMNS[table] for table in load.tables}
            generator.generate(bench.spark, data[load.data], load.events, config, columns=columns)
    return data


def _ours(bench: Workbench, query: str, events: int, per_epoch: int, config: Config, data: Path) -> float:
    with bench.scratch(query) as place:
        run = QueryRun(query, events, config, Path(place, "out"), Path(place, "job"), per_epoch)
        job = run.start(bench.spark, options={"cache": os.path.join(place, "cache")})
        assert job.query is not None
        while job.is_active:
            pause()
        job.await_termination()
        _check(query, OURS, run.results(), expected(query, data))
        return _rate(job.query, per_epoch, events)


def _plainly(bench: Workbench, query: str, events: int, per_epoch: int, config: Config, data: Path) -> float:
    with bench.scratch(query) as place:

        def source(table: str) -> DataFrame:
            ids = generator.bounded(bench.spark, Path(place, f"slices-{table}"), events, per_epoch)
            return generator.TABLES[table](ids, config)

        rows = PLAIN[query](Tables(source, 0.0, 10.0, 2.0))
        out = os.path.join(place, "out")
        writer = rows.writeStream.format("parquet").outputMode("append").option("path", out)
        started = (
            writer.option("checkpointLocation", os.path.join(place, "checkpoint")).trigger(availableNow=True).start()
        )
        while started.isActive:
            pause()
        started.awaitTermination()
        found = bench.spark.read.parquet(out).toArrow()
        _check(query, PLAINLY, found, _closed(query, expected(query, data), events, config))
        return _rate(started, per_epoch, events)


def _closed(query: str, wanted: pa.Table, events: int, config: Config) -> pa.Table:
    """The windows that end before the last event."""
    if query not in ("q5", "q7"):
        return wanted
    last = config.start + (events - 1) * 1_000_000 // config.events_per_second
    starts = wanted.column("window_start").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return wanted.filter(pc.less_equal(pc.add(starts, 10_000_000), last))


def _check(query: str, name: str, found: pa.Table, wanted: pa.Table) -> None:
    comparison = compared(found.select(wanted.schema.names), wanted)
    if not comparison.is_equal:
        raise ResultError(f"{query}, {name}: {comparison}")


def _rate(query: StreamingQuery, per_epoch: int, events: int) -> float:
    """Events per second over the epochs that have rows, without the first third."""
    epochs = epochs_of(query)[: -(-events // per_epoch)]
    kept = epochs[len(epochs) // 3 :]
    return per_epoch * len(kept) / sum(epoch.seconds for epoch in kept)


def _table(record: dict[str, Any]) -> Table:
    table = Table(title=f"Nexmark, events/s, median of {record['rounds']}", title_justify="left")
    for heading in ("query", "in an epoch", OURS, PLAINLY, "ratio"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for one in record["results"]:
        plain, ratio = one.get(PLAINLY), one["ratio"]
        table.add_row(
            one["query"],
            f"{one['rows_per_epoch']:,}",
            f"{one[OURS]:,}",
            f"{plain:,}" if plain else "",
            f"{ratio:.2f}" if ratio is not None else "",
        )
    return table
