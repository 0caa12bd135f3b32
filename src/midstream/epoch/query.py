"""The Spark query under a job, and how it is exchanged for another one between two epochs.

Spark fixes the sources of a query, their options and the trigger when it starts. Where a new plan needs others, the
query is stopped between two epochs and another one goes on with its checkpoint: Spark's offset log is made to fit
first, with no offset for a source that is new. An epoch that Spark had decided on is run by the new query as it was
decided, without rows of the new source. docs/design/2026-11-16-exchanging-the-query.md has what was tried.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import (
    HEARTBEAT,
    Feed,
    by_source,
    committed,
    first_line,
    fitted,
    grown,
    shortened,
    tags,
)
from midstream.epoch.armed import StopRequestedError
from midstream.epoch.engine import Engine
from midstream.errors import JobError, PlanError
from midstream.events import Exchanging
from midstream.flow.triggers import Trigger
from midstream.plan.plan import Plan, Source
from midstream.sources import union
from midstream.sources.given import is_bounded, made, streams_of
from midstream.spark.exceptions import explained, has_lost_spark
from midstream.spark.session import AVAILABLE_NOW, FILE_MANAGER, PLAIN_FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_ROUNDS = 10  # queries that found more rows each, before the end of the input is not believed


@dataclass(frozen=True, slots=True)
class Shape:
    """What Spark fixes when a query starts."""

    sources: frozenset[str]
    max_rows: int | None
    interval: int


class Query:
    """The query that feeds a job; one at a time."""

    def __init__(self, engine: Engine, frames: dict[str, DataFrame], trigger: Trigger) -> None:
        self.current: StreamingQuery | None = None
        self.trigger = trigger
        self.has_ended = False  # for good
        self._engine, self._frames = engine, frames  # frames: of the script
        self._shape: Shape | None = None
        self._broken: Exception | None = None  # why there is no query any more
        self._fallback: Plan | None = None  # whose query is started again if the new one cannot run
        self._changing = threading.RLock()

    def fits(self, plan: Plan) -> bool:
        """Whether the query at hand can feed a plan."""
        wanted, has = self._shape_of(plan), self._shape
        return has is not None and wanted.sources <= has.sources and wanted == replace(has, sources=wanted.sources)

    def check(self, plan: Plan) -> None:
        """Refuse a plan that no query can feed."""
        tuning, sources = plan.tuning, plan.of(Source)
        if tuning.epoch_interval is not None and self.trigger.once:
            raise PlanError("the job runs with available_now, which has no epoch_interval to tune")
        if tuning.max_rows_per_epoch is not None and not any(is_bounded(source.code) for source in sources):
            raise PlanError(
                f"max_rows_per_epoch: none of the sources {', '.join(source.id for source in sources)} can be told. "
                "Give the source as a function with a parameter max_rows, which sets the option that this kind of "
                "source has for it"
            )

    def start(self, plan: Plan, fallback: Plan | None = None, arm: Callable[[int], None] = lambda first: None) -> None:
        """Start a query for a plan.

        If the query ends by itself before `settled` is called, one for `fallback` is started in its place. `arm` is
        called before it starts, with the first epoch that may have rows of a source that is new.
        """
        with self._changing:
            feeds, frames = self._made(plan)
            self._fallback = fallback
            self._start(plan, feeds, frames, arm)

    def exchange(self, plan: Plan, arm: Callable[[int], None] = lambda first: None) -> None:
        """Stop the query between two epochs, and start one for a plan; see `start`."""
        with self._changing:
            feeds, frames = self._made(plan)  # before anything is touched
            self._pause()
            self._fallback = self._engine.resolved.plan
            try:
                self._start(plan, feeds, frames, arm)
            except Exception as error:  # there is no query any more: that ends the job, and not without a word
                self._broken = error
                raise

    def settled(self) -> None:
        """Go on with this query, whatever happens: an epoch was committed with it."""
        self._fallback = None

    def forget(self, id: str) -> None:
        """Let go of a source that was removed: nothing of it is left but its number."""
        with self._changing:
            self._pause()
            engine = self._engine
            engine.feeds = tuple(
                msgspec.structs.replace(feed, forgotten=True, code=None) if feed.id == id else feed
                for feed in engine.feeds
            )
            try:
                engine.journal.write_feeds(engine.feeds)
                self.start(engine.resolved.plan)
            except Exception as error:
                self._broken = error
                raise

    def stop(self) -> None:
        """Let the epoch at hand finish, then stop for good."""
        self._engine.stopping.set()
        with self._changing, self._engine.lock:  # an epoch under way holds it
            pass
        if self.current is not None:
            with _quiet(self._engine.spark):
                self.current.stop()

    def await_end(self) -> None:
        """Wait until the query has ended for good; raises what ended it.

        Where that is the end of the input, another query has found nothing more to read.
        """
        rounds, read = 0, self._offsets()
        while True:
            current, failure = self.current, None
            assert current is not None
            try:
                current.awaitTermination()
            except Exception as error:  # of Spark, of a source, or the engine's own, which is kept there
                failure = error
            with self._changing:
                if self.current is not current or (failure is not None and self._fall_back(failure)):
                    continue
                if failure is None and self.trigger.end_of_input and not self._engine.stopping.is_set():
                    before, read = read, self._offsets()
                    rounds += 1
                    if rounds == 1 or read != before:
                        self._refuse_endless(rounds, before, read)
                        self.start(self._engine.resolved.plan)
                        continue
                self.has_ended = True
                failure = failure or self._broken
                if failure is not None:
                    raise failure
                return

    def _offsets(self) -> dict[str, str]:
        last = self._engine.last
        return by_source(last.offsets, self._engine.feeds) if last is not None else {}

    def _refuse_endless(self, rounds: int, before: dict[str, str], now: dict[str, str]) -> None:
        """Refuse to wait for ever for the end of an input that goes on."""
        if rounds > _ROUNDS:
            going_on = ", ".join(repr(id) for id in now if before.get(id) != now[id])
            raise JobError(
                f"available_now(end_of_input=True): {going_on} had more rows all {_ROUNDS} times that its end was "
                "reached, so it has not ended. Say available_now() to take what is there, and end_of_input=True once "
                "nothing will follow"
            )

    def _fall_back(self, failure: Exception) -> bool:
        """Start the old query again where a new one has ended by itself: a source that cannot be read, mostly."""
        engine, plan = self._engine, self._fallback
        if plan is None or engine.error is not None or engine.stopping.is_set() or has_lost_spark(engine.spark):
            return False
        armed, engine.armed = engine.armed, None
        feeds = self._committed(plan)
        engine.journal.fit_offsets(lambda log, _: shortened(log, feeds))
        self._delete_files(first_line(feeds, len(feeds)), first_line(engine.feeds, len(engine.feeds)))
        engine.journal.write_feeds(feeds)
        engine.feeds = feeds
        self.start(plan)
        if armed is not None:
            armed.broken(explained(failure))
        return True

    def _committed(self, plan: Plan) -> tuple[Feed, ...]:
        last = self._engine.last
        return committed(self._engine.feeds, plan, last.offsets if last is not None else ())

    def _pause(self) -> None:
        """Stop the query between two epochs, to start another."""
        engine = self._engine
        engine.paused.set()
        try:
            with engine.lock:  # an epoch under way holds it
                pass
            if engine.stopping.is_set() or self.has_ended:
                raise JobError("the job has ended, or is being stopped")
            if self.current is not None:
                with _quiet(engine.spark):
                    self.current.stop()
            engine.listener(Exchanging("stopped"))
            if isinstance(engine.error, StopRequestedError):
                engine.error = None
            if engine.error is not None:
                raise JobError(f"the job has failed: {engine.error}")
        finally:
            engine.paused.clear()

    def _shape_of(self, plan: Plan) -> Shape:
        interval = self.trigger.interval if plan.tuning.epoch_interval is None else plan.tuning.epoch_interval
        sources = frozenset(source.id for source in plan.of(Source))
        return Shape(sources, plan.tuning.max_rows_per_epoch, interval)

    def _made(self, plan: Plan) -> tuple[tuple[Feed, ...], list[tuple[int, DataFrame]]]:
        """Make the streams of a query that can feed a plan, in Spark's order."""
        spark, known = self._engine.spark, self._engine.feeds
        wanted: dict[str, Source] = {source.id: source for source in plan.of(Source)}
        made_by = {feed.id: feed.code for feed in known if not feed.forgotten and feed.id != HEARTBEAT}
        made_by |= {source.id: source.code for source in wanted.values()}
        frames: dict[str, DataFrame] = {}
        for id, code in made_by.items():
            if code is not None:
                frames[id] = made(id, code, spark, plan.tuning.max_rows_per_epoch)
            elif id in self._frames:
                frames[id] = self._frames[id]
            elif id in wanted:
                raise PlanError(
                    f"the plan reads the source {id!r}, which this script does not define; start with a script that "
                    "does, or with on_drift='apply' to go on without it"
                )
            else:  # neither the script nor the journal can make it, and no plan reads it
                known = tuple(msgspec.structs.replace(f, forgotten=True) if f.id == id else f for f in known)
        lines = {id: streams_of(frame) for id, frame in frames.items()}
        feeds = grown(known, plan, lines, heartbeat=not self.trigger.once)
        found: list[tuple[int, DataFrame]] = []
        for tag, feed in enumerate(feeds):
            if feed.forgotten or feed.id == HEARTBEAT:
                found += [(union.HEARTBEAT, union.heartbeat(spark)) for _ in range(feed.lines)]
            else:
                found.append((tag, frames[feed.id]))
        return feeds, found

    def _start(
        self,
        plan: Plan,
        feeds: tuple[Feed, ...],
        frames: list[tuple[int, DataFrame]],
        arm: Callable[[int], None],
    ) -> None:
        engine, journal, shape = self._engine, self._engine.journal, self._shape_of(plan)
        known = self._committed(engine.resolved.plan)
        journal.write_feeds(feeds)
        engine.listener(Exchanging("feeds"))
        for i, feed in enumerate(feeds):
            if feed.forgotten:
                self._delete_files(first_line(feeds, i), first_line(feeds, i + 1))
        newest = journal.fit_offsets(lambda log, where: fitted(log, feeds, where))
        engine.listener(Exchanging("offsets"))
        engine.feeds = feeds
        has_new = newest >= 0 and len(journal.offsets(newest)) > first_line(known, len(known))
        arm(newest if has_new else newest + 1)
        stream = union.tagged_union(frames)
        writer = stream.writeStream.foreachBatch(engine.on_batch).queryName(engine.query_name)
        writer = writer.option("checkpointLocation", journal.storage.for_spark(layout.SPARK))
        if self.trigger.once:
            engine.spark.conf.set(AVAILABLE_NOW, "true")  # it stays: Spark reads it some time after the start
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{shape.interval // 1000} milliseconds")
        with plain_files(engine.spark) if journal.storage.is_local else contextlib.nullcontext():
            self.current = writer.start()
        engine.listener(Exchanging("started"))
        self._shape = replace(shape, sources=frozenset(tags(feeds)))

    def _delete_files(self, first: int, end: int) -> None:
        """Delete what Spark keeps of sources, by their numbers in its offset log."""
        for line in range(first, end):
            self._engine.journal.storage.delete(f"{layout.SPARK}/sources/{line}")


@contextlib.contextmanager
def plain_files(spark: SparkSession) -> Iterator[None]:
    """Let a query that starts meanwhile write its logs as `PLAIN_FILES` does, unless the user has chosen a manager."""
    chosen = spark.conf.get(FILE_MANAGER, None)
    if chosen is None:
        spark.conf.set(FILE_MANAGER, PLAIN_FILES)  # the query keeps a copy of the session as it is now
    try:
        yield
    finally:
        if chosen is None:
            spark.conf.unset(FILE_MANAGER)


@contextlib.contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging, as an error, that an epoch which came in during a stop was turned away."""
    logs = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    name = "org.apache.spark.sql.execution.streaming"
    context = logs.LogManager.getContext(False)
    known = context.getConfiguration().getLoggers().containsKey(name)
    before = logs.LogManager.getLogger(name).getLevel()
    logs.core.config.Configurator.setLevel(name, logs.Level.OFF)
    try:
        yield
    finally:
        if known:
            logs.core.config.Configurator.setLevel(name, before)
        else:
            context.getConfiguration().removeLogger(name)
            context.updateLoggers()
