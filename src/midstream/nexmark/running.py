"""A query of Nexmark as a job over events that end, and its results beside what they must be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset

import midstream as ms
from midstream.errors import PlanError
from midstream.events import Event, ignore
from midstream.nexmark import generator
from midstream.nexmark.comparison import Comparison, compared
from midstream.nexmark.generator import Config
from midstream.nexmark.oracle import expected
from midstream.nexmark.queries import QUERIES, Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ABOUT = "_nexmark.json"  # says that a directory is ours, and which events it holds, or which run it is of
UPDATING = {"q4": "category", "q6": "seller"}  # whose last row per key counts


@dataclass(frozen=True, slots=True)
class QueryRun:
    """Which events, how they are cut into epochs, and where everything is stored."""

    query: str
    events: int
    config: Config
    out: Path
    checkpoint: Path
    rows_per_epoch: int = 0  # 0: all in one
    slots: int = 0
    size: float = 10.0  # of windows, in seconds
    slide: float = 2.0

    def __post_init__(self) -> None:
        if self.query not in QUERIES:
            raise PlanError(f"{self.query!r} is not a query of Nexmark; they are {', '.join(QUERIES)}")

    @property
    def delay(self) -> float:
        """The seconds by which events may be out of order."""
        return (self.config.out_of_order - 1) / self.config.events_per_second

    @property
    def epochs(self) -> int:
        """How many epochs have rows."""
        return -(-self.events // self.rows_per_epoch) if self.rows_per_epoch else 1

    def flow(self, spark: SparkSession) -> ms.Flow:
        """Make the flow of the query."""
        flow = ms.Flow(f"nexmark-{self.query}")

        def source(table: str) -> DataFrame:
            slices = os.path.join(self.checkpoint, "slices", table)
            ids = generator.bounded(spark, slices, self.events, self.rows_per_epoch)
            return generator.TABLES[table](ids, self.config)

        events = Events(flow, source, self.delay, self.size, self.slide, self.slots)
        QUERIES[self.query](events).sink("results", ms.sinks.files(self.out))
        return flow

    def start(
        self, spark: SparkSession, listener: Callable[[Event], None] = ignore, options: Mapping[str, Any] | None = None
    ) -> ms.Job:
        """Start it, or continue where it was, with the plan that it had then: it may have been modified."""
        self._claim()
        return self.flow(spark).start(
            self.checkpoint / "job",
            trigger=ms.available_now(end_of_input=True),
            on_drift="keep",
            listener=listener,
            **(options or {}),
        )

    def _claim(self) -> None:
        """Note what runs with this checkpoint; refuse one of another run."""
        mine = asdict(self) | {"out": os.path.abspath(self.out)}
        mine |= mine.pop("config")
        del mine["checkpoint"]
        about = self.checkpoint / ABOUT
        if not about.exists():
            if (self.checkpoint / "job").exists():
                raise PlanError(f"{self.checkpoint} does not say which run it is of; name another checkpoint")
            self.checkpoint.mkdir(parents=True, exist_ok=True)
            draft = about.with_name(f".{ABOUT}.{os.getpid()}")
            draft.write_text(json.dumps(mine))
            draft.replace(about)
            return
        known = json.loads(about.read_text())
        differing = [name for name, value in mine.items() if known.get(name) != value]
        if differing:
            name = differing[0]
            raise PlanError(
                f"{self.checkpoint} is the checkpoint of a run with {name} {known.get(name)}, not {mine[name]}: go on "
                "with the same options, or name another checkpoint"
            )

    def results(self) -> pa.Table:
        """Read the results, without the epoch; of queries that update, the last row of each key."""
        rows = pa.dataset.dataset(self.out, format="parquet", partitioning="hive").to_table()
        if not rows.num_columns:  # none was written yet
            return rows
        if self.query in UPDATING:
            key = UPDATING[self.query]
            last = rows.group_by(key).aggregate([("epoch", "max")]).rename_columns([key, "epoch"])
            rows = rows.join(last, [key, "epoch"], join_type="inner")
        return rows.drop_columns(["epoch"])

    def compared(self, data: Path) -> Comparison:
        """Compare the results with those of the oracle over the same events, as `nexmark generate` writes them."""
        found, wanted = self.results(), expected(self.query, data, self.size, self.slide)
        rows = found.select(wanted.schema.names) if found.num_columns else wanted.schema.empty_table()
        return compared(rows, wanted)
