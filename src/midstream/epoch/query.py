"""The Spark query under a job, and how it is exchanged for another one between two epochs.

Spark fixes the sources of a query, their options and the trigger when it starts. Where a new plan needs others, the
query is stopped between two epochs and another one goes on with its checkpoint: Spark's offset log is made to fit
first, with no offset for a source that is new. An epoch that Spark had decided on is run by the new query as it was
decided, without rows of the new source. docs/design/2026-11-16-exchanging-the-query.md has what was tried.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint import layout
from midstream.checkpoint.offsets import Feed, by_source, committed, first_line, fitted, shortened, tags
from midstream.epoch.batch import Batch
from midstream.epoch.context import JobContext
from midstream.epoch.gate import Gate
from midstream.epoch.history import History
from midstream.epoch.plans import Plans
from midstream.epoch.streams import Tagged, streams_for
from midstream.errors import JobError, PlanError
from midstream.events import Exchanging
from midstream.flow.triggers import Trigger
from midstream.plan.plan import Plan, Source
from midstream.sources import union
from midstream.sources.given import is_bounded
from midstream.spark.exceptions import explained, has_lost_spark, with_free_space
from midstream.spark.logs import quiet_streaming
from midstream.spark.session import AVAILABLE_NOW, plain_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


_ROUNDS = 10  # queries that found more rows each, before the end of the input is not believed


@dataclass(frozen=True, slots=True)
class Shape:
    """What Spark fixes when a query starts."""

    sources: frozenset[str]
    max_rows: int | None
    interval: int


class Query:
    """The query that feeds a job; one at a time.

    Spark calls it with every batch, and it hands that on to `run`, with the number of the epoch.
    """

    def __init__(
        self,
        context: JobContext,
        gate: Gate,
        plans: Plans,
        history: History,
        run: Callable[[int, Batch], None],
        frames: dict[str, DataFrame],
        trigger: Trigger,
    ) -> None:
        self.current: StreamingQuery | None = None
        self.trigger = trigger
        self.has_ended = False  # for good
        self.feeds = context.journal.feeds()  # its sources
        self.error: BaseException | None = None  # that an epoch has ended with
        self._context, self._gate, self._plans, self._history = context, gate, plans, history
        self._spark, self._journal = context.spark, context.journal
        self._run, self._frames = run, frames  # frames: of the script
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
                f"max_rows_per_epoch: none of the sources {', '.join(source.id for source in sources)} can be limited. "
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
            self._fallback = self._plans.running.plan
            try:
                self._start(plan, feeds, frames, arm)
            except Exception as error:  # there is no query any more: that ends the job, and not without a word
                self._broken = error
                raise

    def settled(self) -> None:
        """Go on with this query, whatever happens: an epoch was committed with it."""
        self._fallback = None

    def forget(self, id: str) -> None:
        """Forget a source that was removed: nothing of it is left but its number."""
        with self._changing:
            self._pause()
            self.feeds = tuple(
                msgspec.structs.replace(feed, forgotten=True, code=None) if feed.id == id else feed
                for feed in self.feeds
            )
            try:
                self._journal.write_feeds(self.feeds)
                self.start(self._plans.running.plan)
            except Exception as error:
                self._broken = error
                raise

    def stop(self) -> None:
        """Let the epoch at hand finish, then stop for good."""
        self._gate.stopping.set()
        with self._changing, self._gate.between_epochs():
            pass
        self._stop_current()

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
            except Exception as error:  # of Spark, of a source, or of an epoch, which is kept in `error`
                failure = error
            with self._changing:
                if self.current is not current or (failure is not None and self._fall_back(failure)):
                    continue
                if failure is None and self.trigger.end_of_input and not self._gate.stopping.is_set():
                    before, read = read, self._offsets()
                    rounds += 1
                    if rounds == 1 or read != before:
                        self._refuse_endless(rounds, before, read)
                        self.start(self._plans.running.plan)
                        continue
                self.has_ended = True
                failure = failure or self._broken
                if failure is not None:
                    raise failure
                return

    def _offsets(self) -> dict[str, str]:
        return by_source(self._history.offsets, self.feeds)

    def _refuse_endless(self, rounds: int, before: dict[str, str], now: dict[str, str]) -> None:
        """Refuse to wait for ever for the end of an input that goes on."""
        if rounds > _ROUNDS:
            going_on = ", ".join(repr(id) for id in now if before.get(id) != now[id])
            raise JobError(
                f"available_now(end_of_input=True): {going_on} had more rows all {_ROUNDS} times that its end was "
                "reached, so it has not ended. Use available_now() to take what is there, and end_of_input=True once "
                "nothing will follow"
            )

    def _fall_back(self, failure: Exception) -> bool:
        """Start the old query again where a new one has ended by itself: a source that cannot be read, mostly."""
        plan = self._fallback
        if plan is None or self.error is not None or self._gate.stopping.is_set() or has_lost_spark(self._spark):
            return False
        armed = self._plans.disarm()
        feeds = self._committed(plan)
        self._journal.fit_offsets(lambda log, _: shortened(log, feeds))
        self._delete_files(first_line(feeds, len(feeds)), first_line(self.feeds, len(self.feeds)))
        self._journal.write_feeds(feeds)
        self.feeds = feeds
        self.start(plan)
        if armed is not None:
            armed.broken(explained(failure))
        return True

    def _committed(self, plan: Plan) -> tuple[Feed, ...]:
        return committed(self.feeds, plan, self._history.offsets)

    def _pause(self) -> None:
        """Stop the query between two epochs, to start another."""
        with self._gate.closed():
            if self._gate.stopping.is_set() or self.has_ended:
                raise JobError("the job has ended, or is being stopped")
            self._stop_current()
            self._context.listener(Exchanging("stopped"))
            if self.error is not None:
                raise JobError(f"the job has failed: {self.error}")

    def _stop_current(self) -> None:
        if self.current is not None:
            with quiet_streaming(self._spark):
                self.current.stop()

    def _shape_of(self, plan: Plan) -> Shape:
        interval = self.trigger.interval if plan.tuning.epoch_interval is None else plan.tuning.epoch_interval
        sources = frozenset(source.id for source in plan.of(Source))
        return Shape(sources, plan.tuning.max_rows_per_epoch, interval)

    def _made(self, plan: Plan) -> tuple[tuple[Feed, ...], list[Tagged]]:
        max_rows, heartbeat = plan.tuning.max_rows_per_epoch, not self.trigger.once
        return streams_for(self._spark, plan, self.feeds, self._frames, max_rows, heartbeat=heartbeat)

    def _start(
        self,
        plan: Plan,
        feeds: tuple[Feed, ...],
        frames: list[Tagged],
        arm: Callable[[int], None],
    ) -> None:
        journal, listener, shape = self._journal, self._context.listener, self._shape_of(plan)
        known = self._committed(self._plans.running.plan)
        journal.write_feeds(feeds)
        listener(Exchanging("feeds"))
        for i, feed in enumerate(feeds):
            if feed.forgotten:
                self._delete_files(first_line(feeds, i), first_line(feeds, i + 1))
        newest = journal.fit_offsets(lambda log, where: fitted(log, feeds, where))
        listener(Exchanging("offsets"))
        self.feeds = feeds
        has_new = newest >= 0 and len(journal.offsets(newest)) > first_line(known, len(known))
        arm(newest if has_new else newest + 1)
        self.current = self._started(union.tagged_union(frames), feeds, shape.interval)
        listener(Exchanging("started"))
        self._shape = replace(shape, sources=frozenset(tags(feeds)))

    def _started(self, stream: DataFrame, feeds: tuple[Feed, ...], interval: int) -> StreamingQuery:
        def on_batch(rows: DataFrame, epoch: int) -> None:
            self._on_batch(rows, epoch, feeds)

        writer = stream.writeStream.foreachBatch(on_batch).queryName(self._context.query_name)
        writer = writer.option("checkpointLocation", self._journal.storage.for_spark(layout.SPARK))
        if self.trigger.once:
            self._spark.conf.set(AVAILABLE_NOW, "true")  # it stays: Spark reads it some time after the start
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval // 1000} milliseconds")
        with plain_files(self._spark) if self._journal.storage.is_local else contextlib.nullcontext():
            return writer.start()

    def _on_batch(self, rows: DataFrame, epoch: int, feeds: tuple[Feed, ...]) -> None:
        """Run an epoch: what Spark calls."""
        with self._gate.epoch():
            try:
                self._run(epoch, Batch(rows, self._journal.offsets(epoch), feeds))
            except BaseException as error:
                context, root = self._spark.sparkContext, self._journal.storage.root
                places = {"checkpoint": root, "cache": self._context.settings.cache, "Spark": context._temp_dir or ""}
                self.error = with_free_space(explained(error), places)
                if not isinstance(self.error, Exception):  # nobody would answer Spark, which would wait for ever
                    raise JobError(f"the epoch was ended by {type(error).__name__}: {error}") from error
                raise self.error from error

    def _delete_files(self, first: int, end: int) -> None:
        """Delete what Spark keeps of sources, by their numbers in its offset log."""
        for line in range(first, end):
            self._journal.storage.delete(f"{layout.SPARK}/sources/{line}")
