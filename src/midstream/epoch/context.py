"""What every part of a running job knows, and what does not change while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from midstream.checkpoint.journal import Journal
from midstream.epoch.clock import EpochClock
from midstream.epoch.session_settings import SessionSettings
from midstream.epoch.settings import Settings
from midstream.events import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The session, the checkpoint and the options of one job."""

    spark: SparkSession
    journal: Journal
    job: str  # its id, the same over restarts
    query_name: str
    groups: int
    settings: Settings
    clock: EpochClock
    listener: Callable[[Event], None]
    guard: Callable[[], None] = lambda: None  # raises if the checkpoint no longer belongs to the job
    session_settings: SessionSettings = field(default_factory=SessionSettings)

    def cancel_epoch(self) -> None:
        """End the Spark jobs of the epoch at hand; Spark knows them by the id of the query's run."""
        for query in self.spark.streams.active:
            if query.name == self.query_name:
                self.spark.sparkContext.cancelJobGroup(str(query.runId))
