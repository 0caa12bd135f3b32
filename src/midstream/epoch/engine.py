"""The epoch, step by step: journal, run, commit, publish, tidy up.

The engine is called once per micro-batch. What it promises is written in docs/protocol.md; the order of the steps in
`_epoch` is that protocol.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from midstream import events
from midstream.checkpoint import layout
from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.offsets import (
    HEARTBEAT,
    Feed,
    by_source,
    comparable,
    tags,
)
from midstream.checkpoint.records import (
    Commit,
    Cut,
    Intent,
    OperatorState,
)
from midstream.epoch import decision
from midstream.epoch.armed import Armed, Follower, StopRequestedError
from midstream.epoch.attempt import Attempt, Outcome
from midstream.epoch.briefing import Committed, Density, keyed_run
from midstream.epoch.clock import EpochClock
from midstream.epoch.commit import next_record
from midstream.epoch.deadline import Limit
from midstream.epoch.own_threads import OwnThreads
from midstream.epoch.progress import progress_of
from midstream.epoch.publication import Publication
from midstream.epoch.settings import Settings
from midstream.errors import CheckpointError, JobError, PlanError
from midstream.events import (
    After,
    Before,
    Event,
    Progress,
    Step,
)
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved, check_layout
from midstream.operators.schemas import parse_schema
from midstream.operators.shuffle import KeyedRun
from midstream.placement.assignment import Assignment
from midstream.placement.seating import Seating
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.compatibility import on_trial
from midstream.sources.split import execution_of
from midstream.sources.union import union_schema
from midstream.spark.exceptions import (
    explained,
    has_lost_spark,
    is_final,
    with_free_space,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


T = TypeVar("T")

ATTEMPTS = 3  # runs of an epoch before its failure is the job's
_RECENT = 8  # epochs whose logs are shipped with the tasks
_SAMPLED = 4  # epochs whose rows new code may be tried on


@dataclass
class Engine:
    """Runs the epochs of one job."""

    spark: SparkSession
    journal: Journal
    job: str
    query_name: str
    groups: int
    resolved: Resolved  # the running plan
    cores: InitVar[int]
    settings: Settings
    clock: EpochClock
    listener: Callable[[Event], None]
    guard: Callable[[], None] = lambda: None  # raises if the checkpoint is not the job's any more
    last: Commit | None = None
    error: BaseException | None = None
    progress: Progress | None = None
    armed: Armed | None = None
    follower: Follower | None = None
    feeds: tuple[Feed, ...] = ()  # the sources of the query at hand
    batches: deque[DataFrame] = field(default_factory=lambda: deque(maxlen=_SAMPLED))  # of the last epochs
    forgotten: dict[str, int] = field(default_factory=dict)  # removed operator -> its birth; goes with the next epoch
    forgetting: frozenset[str] = frozenset()  # operators whose state goes with the epoch at hand
    stopping: threading.Event = field(default_factory=threading.Event)  # no epoch is begun any more
    paused: threading.Event = field(default_factory=threading.Event)  # no epoch is begun: the query is exchanged
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: OwnThreads = field(default_factory=OwnThreads)
    recent: deque[Commit] = field(default_factory=lambda: deque(maxlen=_RECENT))
    sizes: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)  # operator -> group -> entries, bytes
    _densities: dict[str, Density] = field(default_factory=dict)  # operator -> of its rows in the last epoch
    _plans: dict[int, Resolved] = field(default_factory=dict)
    _configured: tuple[Any, int] | None = None  # Spark's session, plan version

    def __post_init__(self, cores: int) -> None:
        self._plans[self.resolved.plan.version] = self.resolved
        seating = Seating(self.spark, cores, self.settings.apart)
        self.assignment = Assignment(self.groups, seating, self.settings.defers, self.settings.standbys)
        self.housekeeping = Housekeeping(self.journal, self.settings.keep_epochs, self.settings.snapshot_budget)
        tries, accept = self.settings.publish_tries, self.settings.accept_lost_output
        self._publication = Publication(self.spark, self.journal, tries, accept, self.stopping, self.listener)

    # --- the outside ---

    def recover(self) -> None:
        """Take up the committed history, publish the newest epoch again, delete what was left half done."""
        self.take_up()
        for left in (layout.SHADOW, layout.REHEARSAL):
            self.journal.storage.delete(left)
        if self.last is not None:
            self._publication.check(self.resolved.plan, self.job, self.last)
            self._publish(self.last)
            self.housekeeping.discard(layout.SPOOL, self.last.epoch)

    def settle(self) -> None:
        """Find the executors, on a cluster, and write down which groups each has."""
        self.assignment.seating.warm()
        self.look_around()
        plan = self.assignment.settled(self.resolved.plan, self.resolved)
        self.resolved = replace(self.resolved, plan=plan)
        self.add_plan(self.resolved)

    def take_up(self) -> None:
        """Go on from the committed history; delete what no record names."""
        self.last = self.journal.newest_commit()
        if self.last is None:
            return
        self.housekeeping.sweep(self.last)
        self.forgotten = self.journal.forgotten()
        for epoch in range(max(self.last.epoch - _RECENT + 1, 0), self.last.epoch):
            if self.journal.storage.exists(layout.commit_file(epoch)):
                self.recent.append(self.journal.commit(epoch))
        self.recent.append(self.last)
        for id, keyed in self.resolved.keyed.items():
            if id in self.states:
                check_layout(id, self.states[id].layouts, keyed)

    def look_around(self) -> None:
        """Find the executors that there are now; between two epochs."""
        self.assignment.seating.look_around(self.assignment.most_slots(self.resolved.plan))

    def adopt(self, version: int | None = None) -> None:
        """Let an epoch that was begun but not committed run under the plan of this start: nobody has seen its rows.

        Args:
            version: of the plan that it must run under; by default it keeps its own, if the job still knows that.
        """
        epoch = self.last.epoch + 1 if self.last is not None else 0
        intent = self.journal.intent(epoch)
        known = {self.resolved.plan.version, self.armed.version if self.armed is not None else 0}
        if intent is not None and (intent.version not in known if version is None else intent.version != version):
            adopted = self.resolved.plan.version if version is None else version
            self.journal.write_intent(msgspec.structs.replace(intent, version=adopted))

    def on_batch(self, batch: DataFrame, epoch: int) -> None:
        """Run an epoch: what Spark calls."""
        with self.lock, self.threads.entered():
            if self.stopping.is_set() or self.paused.is_set():
                raise StopRequestedError("the job is being stopped, or its query exchanged")
            try:
                self._epoch(batch, epoch)
            except BaseException as error:
                context, root = self.spark.sparkContext, self.journal.storage.root
                places = {"checkpoint": root, "cache": self.settings.cache, "Spark": context._temp_dir or ""}
                self.error = with_free_space(explained(error), places)
                if not isinstance(self.error, Exception):  # nobody would answer Spark, which would wait for ever
                    raise JobError(f"the epoch was ended by {type(error).__name__}: {error}") from error
                raise self.error from error

    def finish(self) -> None:
        """Run one more epoch, without rows, in which the watermark passes the end of time."""
        if self.last is None or self.last.final:
            return
        with self.lock:
            batch = self.spark.newSession().createDataFrame([], self.batch_schema(self.feeds))
            intent = self._intent(self.last.epoch + 1)
            self.run(batch, intent, self.last.offsets, final=True)

    def batch_schema(self, feeds: Sequence[Feed]) -> StructType:
        """The schema of the tagged union, for an epoch without rows."""
        known = {tag: feeds[tag] for id, tag in tags(feeds).items() if id != HEARTBEAT}
        return union_schema({tag: parse_schema(feed.schema, f"source {feed.id!r}") for tag, feed in known.items()})

    # --- the protocol ---

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        offsets, last = self.journal.offsets(epoch), self.last
        before = comparable(last.offsets, self.feeds) if last else ()
        verdict = decision.decide(last.epoch if last else None, before, epoch, comparable(offsets, self.feeds))
        if isinstance(verdict, decision.Refuse):
            raise CheckpointError(
                f"{verdict.reason}. The checkpoint {self.journal.storage.root} was changed by hand or copied in part; "
                "restore it whole, or start from a savepoint"
            )
        if isinstance(verdict, decision.Republish):
            assert self.last is not None
            self._publish(self.last)
            return
        self.run(batch, self._intent(epoch), offsets, final=False)

    def run(self, batch: DataFrame, intent: Intent, offsets: tuple[str, ...], final: bool) -> None:
        """Run an epoch that was decided on, commit and publish it."""
        if self.follower is None:
            self._run_and_commit(batch, intent, offsets, final)
            return
        batch = batch.persist()  # the follower must see the same rows
        try:
            self._run_and_commit(batch, intent, offsets, final)
        finally:
            batch.unpersist()
            self._configured = None  # the follower may have another number of slots

    def _run_and_commit(self, batch: DataFrame, intent: Intent, offsets: tuple[str, ...], final: bool) -> None:
        started = time.perf_counter()
        times: dict[str, float] = {}
        before = self.last.offsets if self.last is not None else ()
        known = self.last.operators if self.last is not None else {}
        self.forgetting = frozenset(known.keys() - self.states.keys())
        intent, outcome = self._run_under(batch, intent, final, times)
        resolved = self.plan_of(intent.version)
        commit = next_record(
            self.last,
            intent,
            offsets,
            outcome,
            resolved,
            self.groups,
            self.forgetting,
            self._publication.lost,
            final=final,
        )
        self.guard()
        self._timed(times, Step.COMMIT, intent.epoch, lambda: self.journal.write_commit(commit))
        self._publication.lost.clear()
        self.last = commit
        self.recent.append(commit)
        self.batches.append(batch)
        reports = {id: [report for _, report in found] for id, found in outcome.reports.items()}
        self.assignment.after(reports)
        if self.armed is not None and intent.version == self.armed.version:
            armed, self.armed, self.resolved = self.armed, None, resolved
            armed.committed(Cut(commit.epoch, by_source(before, self.feeds)))
        self._timed(times, Step.PUBLISH, intent.epoch, lambda: self._publish(commit))
        self._forget()
        self.housekeeping.after(commit, reports)
        times["total"] = time.perf_counter() - started
        if self.follower is not None:
            self.follower.follow(batch, intent, offsets, final=final)
        self._report(commit, outcome, times)

    def _run_under(
        self, batch: DataFrame, intent: Intent, final: bool, times: dict[str, float]
    ) -> tuple[Intent, Outcome]:
        """Run an epoch under the plan it was decided to run under; under the old one where a new one fails."""
        if self.armed is None or intent.version != self.armed.version:
            return intent, self._timed(times, Step.RUN, intent.epoch, lambda: self._run(batch, intent, final))
        armed = self.armed
        armed.begun()
        try:
            with Limit(self.settings.cut_deadline, "the first epoch under the new plan", self.cancel) as limit:
                return intent, self._timed(
                    times, Step.RUN, intent.epoch, lambda: self._run(batch, intent, final, limit.passed.is_set)
                )
        except Exception as error:
            if has_lost_spark(self.spark):  # the new plan is not to blame: it is applied when the job is started again
                raise
            self.armed = None
            armed.broken(explained(error))
        homes = [layout.home_of(id, self.born(id, intent.epoch)) for id in armed.resolved.keyed]
        self.housekeeping.drop_logs(homes, intent.epoch)
        again = msgspec.structs.replace(intent, version=self.resolved.plan.version)
        self.journal.write_intent(again)
        return again, self._timed(times, Step.RUN, again.epoch, lambda: self._run(batch, again, final))

    def disarm(self, version: int) -> bool:
        """Let the plan that is armed not be applied; False if it is another one. Between two epochs."""
        if self.armed is None or self.armed.version != version:
            return False
        self.armed = None
        self.adopt()
        return True

    def cancel(self) -> None:
        """End the Spark jobs of the epoch at hand; Spark knows them by the id of the query's run."""
        for query in self.spark.streams.active:
            if query.name == self.query_name:
                self.spark.sparkContext.cancelJobGroup(str(query.runId))

    def forget(self, id: str, born: int) -> None:
        """Let the state of a removed operator go with the next epoch, also if the driver is killed before it."""
        with contextlib.nullcontext() if self.threads.has_this else self.lock:  # between two epochs
            if self.armed is not None and id in self.armed.resolved.keyed:
                raise PlanError(f"a modification that is about to be applied brings {id!r} back; wait for it first")
            if id in self.resolved.keyed or self.states.get(id) is None:
                raise PlanError(f"operator {id!r} was brought back, or is forgotten, in the meantime")
            self.forgotten = {**self.forgotten, id: born}
            self.journal.write_forgotten(self.forgotten)

    def _forget(self) -> None:
        """Let go of what the commit has left out."""
        if self.forgetting:
            for id in self.forgetting:
                self.housekeeping.forget(id, self.forgotten[id])
            self.forgotten = {id: born for id, born in self.forgotten.items() if id not in self.forgetting}
            self.journal.write_forgotten(self.forgotten)
            self.forgetting = frozenset()

    @property
    def states(self) -> dict[str, OperatorState]:
        """What is known of keyed operators, also of those that were removed, but for those that are forgotten."""
        known = self.last.operators if self.last is not None else {}
        return {id: state for id, state in known.items() if self.forgotten.get(id) != state.born}

    def born(self, id: str, epoch: int) -> int:
        """Return the first epoch that has a keyed operator, as the epoch at hand sees it."""
        known = self.last.operators if self.last is not None else {}
        return known[id].born if id in known and id not in self.forgetting else epoch

    def _timed(self, times: dict[str, float], step: Step, epoch: int, action: Callable[[], T]) -> T:
        self.listener(Before(step, epoch))
        started = time.perf_counter()
        result = action()
        times[step.value] = time.perf_counter() - started
        self.listener(After(step, epoch))
        return result

    def _intent(self, epoch: int) -> Intent:
        """What is decided for an epoch: as journalled if it was begun before, else decided and journalled now."""
        intent = self.journal.intent(epoch)
        if intent is None:
            now = self.clock.after(self.last.clock if self.last is not None else 0)
            is_due = self.armed is not None and epoch >= self.armed.first
            version = self.armed.version if self.armed is not None and is_due else self.resolved.plan.version
            intent = Intent(epoch=epoch, version=version, clock=now, seed=os.urandom(8).hex())
            self.guard()
            self.listener(Before(Step.JOURNAL, epoch))
            self.journal.write_intent(intent)
            self.listener(After(Step.JOURNAL, epoch))
        return intent

    def _run(
        self, batch: DataFrame, intent: Intent, final: bool, is_late: Callable[[], bool] = lambda: False
    ) -> Outcome:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(batch, intent, final)()
            except Exception as error:
                if attempt == ATTEMPTS or is_late() or is_final(error, self.spark.sparkContext.master or ""):
                    raise
                self.listener(events.Rerun(intent.epoch, attempt, str(explained(error))))
        raise AssertionError("unreachable")

    def _attempt(self, batch: DataFrame, intent: Intent, final: bool) -> Attempt:
        resolved = self.plan_of(intent.version)
        self.configure(batch.sparkSession, resolved)
        keyed = {o.id: self._keyed_run(resolved, o.id, intent, final) for o in resolved.plan.of(p.KeyedOperator)}
        return Attempt(
            resolved, batch, intent.epoch, self.job, self.journal.storage, tags(self.feeds), keyed, self.listener,
            self.follower.witness if self.follower is not None else None, intent.clock,
            lambda: None if final else execution_of(self.spark, self.query_name),
            on_trial(self.resolved.plan, resolved.plan),
        )  # fmt: skip

    def _keyed_run(self, resolved: Resolved, id: str, intent: Intent, final: bool) -> KeyedRun:
        committed = Committed(
            self.job, self.journal.storage.root, self.groups, self.settings, self.last, tuple(self.recent),
            self.forgetting,
        )  # fmt: skip
        serving = self.assignment.serving(resolved, id)
        due = self.housekeeping.snapshots_due(id, committed.state(id, intent.epoch), intent.epoch)
        density = self._densities.get(id, Density())
        return keyed_run(committed, resolved, id, intent, serving, frozenset(due), density, final=final)

    def configure(self, session: SparkSession, resolved: Resolved) -> None:
        """Tune the session of a batch, which is not the user's."""
        configured = (session._jsparkSession, resolved.plan.version)  # each batch has a Python session of its own
        if self._configured != configured:
            partitions = max(self.assignment.seating.cores, self.assignment.most_slots(resolved.plan))
            session.conf.set("spark.sql.shuffle.partitions", str(partitions))
            rows = resolved.plan.tuning.rows_per_arrow_batch or self.settings.rows_per_arrow_batch
            session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
            session.conf.set("spark.sql.adaptive.enabled", "false")
            session.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")  # what is kept lasts an epoch
            self._configured = configured

    def _publish(self, commit: Commit) -> None:
        self._publication(commit, self._plan_of(commit))

    def _plan_of(self, commit: Commit) -> p.Plan:
        known = self._plans.get(commit.version)  # one that is of an older code may not fit together any more
        return known.plan if known is not None else self.journal.plan(commit.version)

    def keep_plans(self, versions: set[int]) -> None:
        """Drop plans that nobody needs any more."""
        kept = {version: resolved for version, resolved in self._plans.items() if version in versions}
        dropped = [resolved for version, resolved in self._plans.items() if version not in versions]
        used = {key for resolved in kept.values() for key in p.code_keys(resolved.plan)}
        code.forget({key for resolved in dropped for key in p.code_keys(resolved.plan)} - used)
        self._plans = kept

    def add_plan(self, resolved: Resolved) -> None:
        """Make a plan known."""
        self._plans[resolved.plan.version] = resolved

    def plan_of(self, version: int) -> Resolved:
        """Return a plan version, resolved."""
        if version not in self._plans:
            self._plans[version] = resolve(self.spark, self.journal.plan(version))
        return self._plans[version]

    def _report(self, commit: Commit, outcome: Outcome, times: dict[str, float]) -> None:
        for id, found in outcome.reports.items():
            rows, keys = (sum(report.rows for _, report in found), sum(report.keys for _, report in found))
            before = self._densities.get(id, Density())
            per_row = keys / rows if rows else before.keys_per_row
            self._densities[id] = Density(per_row, min(report.rows for _, report in found))
            for _, report in found:
                self.sizes.setdefault(id, {}).update(report.sizes)
        moving = {id: len(move.waiting) for id, move in self.assignment.moves.items()}
        self.progress = progress_of(
            commit, outcome, self.resolved.plan, times, self.housekeeping.log_bytes, moving, self.sizes
        )
        self.listener(self.progress)
