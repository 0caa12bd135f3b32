"""The epoch, step by step: journal, run, commit, publish, tidy up.

The engine is called once per micro-batch. What it promises is written in docs/protocol.md; the order of the steps in
`_epoch` is that protocol.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from midstream import code, coordinator, events
from midstream import plan as p
from midstream import storage as layout
from midstream.aggregates import quote
from midstream.dataflow import Dataflow, KeyedRun
from midstream.errors import CheckpointError, MidstreamError
from midstream.events import After, Before, Event, Progress, Step
from midstream.failures import explained, is_final
from midstream.housekeeping import Housekeeping
from midstream.journal import Commit, Intent, Journal, LogRef, OperatorState, SnapshotRef
from midstream.resolve import Resolved, check_layout, resolve
from midstream.routing import Routing
from midstream.sinks.base import Sink, Staged, Staging
from midstream.slot import Epoch
from midstream.state.cache import Head, logs_of
from midstream.state.changelog import Report, read_report
from midstream.state.wire import moment_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

T = TypeVar("T")

END_OF_TIME = 253_402_300_799_000_000  # the watermark after the end of the input: 9999-12-31, in microseconds
ATTEMPTS = 3  # runs of an epoch before its failure is the job's
_RECENT = 8  # epochs whose logs are shipped with the tasks
_COMBINE_BELOW = 0.5  # distinct keys per row below which rows are folded in the JVM before they go to Python
_BUSY = 100  # rows of every slot in the last epoch from which all slots are expected to have some in the next
_OBSERVE_SECONDS = 5.0


@dataclass(slots=True)
class Settings:
    """What a job may be told besides its flow."""

    cache: str
    keep_epochs: int = 10
    snapshot_budget: int = 1 << 20
    rows_per_arrow_batch: int = 100_000
    in_place: bool = False


class StopRequestedError(MidstreamError):
    """Raised into a new epoch when the job is being stopped: the epoch has not begun, and is run after a restart."""


@dataclass(slots=True)
class _Outcome:
    """What a successful run of an epoch leaves."""

    reports: dict[str, list[tuple[str, Report]]]  # operator -> (path, report) per slot
    staged: list[Staged]
    event_times: dict[str, int]


@dataclass
class Engine:
    """Runs the epochs of one job."""

    spark: SparkSession
    journal: Journal
    job: str
    groups: int
    resolved: Resolved
    slots: dict[str, int]
    settings: Settings
    clock: Callable[[], int]
    listener: Callable[[Event], None]
    last: Commit | None = None
    error: BaseException | None = None
    progress: Progress | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _recent: deque[Commit] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _folds: dict[str, float] = field(default_factory=dict)  # operator -> distinct keys per row, last epoch
    _least: dict[str, int] = field(default_factory=dict)  # operator -> rows of the slot that had fewest, last epoch
    _plans: dict[int, Resolved] = field(default_factory=dict)
    _configured: SparkSession | None = None

    def __post_init__(self) -> None:
        self._plans[self.resolved.plan.version] = self.resolved
        self.housekeeping = Housekeeping(self.journal, self.settings.keep_epochs, self.settings.snapshot_budget)

    # --- the outside ---

    def recover(self) -> None:
        """Take up the committed history: publish the newest epoch again, delete what no record names."""
        self.last = self.journal.newest_commit()
        if self.last is None:
            return
        for epoch in range(max(self.last.epoch - _RECENT + 1, 0), self.last.epoch):
            if self.journal.storage.exists(layout.commit_file(epoch)):
                self._recent.append(self.journal.commit(epoch))
        self._recent.append(self.last)
        for id, keyed in self.resolved.keyed.items():
            if id in self.last.operators:
                check_layout(id, self.last.operators[id].layout, keyed)
        self._publish(self.last)
        self.journal.storage.delete(layout.SPOOL)
        self.housekeeping.sweep(self.last)

    def adopt(self) -> None:
        """Let an epoch that was begun but not committed run under the plan of this start: nobody has seen its rows."""
        epoch = self.last.epoch + 1 if self.last is not None else 0
        intent = self.journal.intent(epoch)
        if intent is not None and intent.version != self.resolved.plan.version:
            self.journal.write_intent(msgspec.structs.replace(intent, version=self.resolved.plan.version))

    def on_batch(self, batch: DataFrame, epoch: int) -> None:
        """Run an epoch: what Spark calls."""
        with self.lock:
            if self.stopping.is_set():
                raise StopRequestedError("the job is being stopped")
            try:
                self._epoch(batch, epoch)
            except BaseException as error:
                self.error = explained(error)
                raise self.error from error

    def finish(self) -> None:
        """Run one more epoch, without rows, in which the watermark passes the end of time."""
        if self.last is None or self.last.final:
            return
        with self.lock:
            batch = self.spark.newSession().createDataFrame([], self.batch_schema())
            intent = self._intent(self.last.epoch + 1)
            self._run_and_commit(batch, intent, self.last.offsets, final=True)

    def batch_schema(self) -> str:
        """The schema of the tagged union, for an epoch without rows."""
        columns = ["_source int"]
        for i, source in enumerate(self.resolved.plan.of(p.Source)):
            for j, column in enumerate(self.resolved.schemas[source.id]):
                columns.append(f"c{i}_{j} {column.dataType.simpleString()}")
        return ", ".join(columns)

    # --- the protocol ---

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        offsets = self.journal.offsets(epoch)
        last = self.last
        decision = coordinator.decide(last.epoch if last else None, last.offsets if last else (), epoch, offsets)
        if isinstance(decision, coordinator.Refuse):
            raise CheckpointError(
                f"{decision.reason}. The checkpoint {self.journal.storage.root} was changed by hand or copied in part; "
                "restore it whole, or start from a savepoint"
            )
        if isinstance(decision, coordinator.Republish):
            assert self.last is not None
            self._publish(self.last)
            return
        self._run_and_commit(batch, self._intent(epoch), offsets, final=False)

    def _run_and_commit(self, batch: DataFrame, intent: Intent, offsets: tuple[str, ...], *, final: bool) -> None:
        started = time.perf_counter()
        times: dict[str, float] = {}
        outcome = self._timed(times, Step.RUN, intent.epoch, lambda: self._run(batch, intent, final))
        commit = self._record(intent, offsets, outcome, final)
        self._timed(times, Step.COMMIT, intent.epoch, lambda: self.journal.write_commit(commit))
        self.last = commit
        self._recent.append(commit)
        self._timed(times, Step.PUBLISH, intent.epoch, lambda: self._publish(commit))
        self.housekeeping.after(commit, {id: [r for _, r in found] for id, found in outcome.reports.items()})
        times["total"] = time.perf_counter() - started
        self._report(commit, outcome, times)

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
            now = max(self.clock(), self.last.clock if self.last is not None else 0)
            intent = Intent(epoch=epoch, version=self.resolved.plan.version, clock=now, seed=os.urandom(8).hex())
            self.listener(Before(Step.JOURNAL, epoch))
            self.journal.write_intent(intent)
            self.listener(After(Step.JOURNAL, epoch))
        return intent

    def _run(self, batch: DataFrame, intent: Intent, final: bool) -> _Outcome:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(batch, intent, final)
            except Exception as error:
                if attempt == ATTEMPTS or is_final(error, self.spark.sparkContext.master or ""):
                    raise
                self.listener(events.Rerun(intent.epoch, attempt, str(explained(error))))
        raise AssertionError("unreachable")

    def _attempt(self, batch: DataFrame, intent: Intent, final: bool) -> _Outcome:
        """Run the Spark jobs of an epoch once, under a name of its own: files of other runs do not count."""
        resolved = self._resolved(intent.version)
        plan, run = resolved.plan, os.urandom(4).hex()
        self._configure(batch)
        keyed = {o.id: self._keyed_run(resolved, o.id, intent, final) for o in plan.of(p.Process, p.Aggregate)}
        flow = Dataflow(resolved, batch, intent.epoch, run, keyed)
        begun: list[tuple[Sink, Staging]] = []
        try:
            flow.prepare()
            staged = []
            for operator in plan.of(p.Sink):
                spool = self.journal.storage.path(layout.spool_directory(operator.id, intent.epoch, run))
                begun.append((code.load(operator.code), Staging(operator.id, self.job, intent.epoch, run, spool)))
                staged.append(begun[-1][0].stage(flow.frame(operator.inputs[0]), begun[-1][1]))
                self.listener(events.Staged(intent.epoch, operator.id))
            reports = {id: self._reports(flow, id, one) for id, one in keyed.items()}
            return _Outcome(reports, staged, self._event_times(flow))
        except BaseException:
            for sink, staging in begun:
                sink.clean(staging)
            raise
        finally:
            flow.close()

    def _reports(self, flow: Dataflow, id: str, run: KeyedRun) -> list[tuple[str, Report]]:
        """Collect one report per slot; run the operator on its own where a slot had no rows or was left out."""
        found = self._collect(id, flow)
        if any(slot not in found for slot in range(run.routing.slots)):
            flow.run_alone(id)
            found = self._collect(id, flow)
        missing = [slot for slot in range(run.routing.slots) if slot not in found]
        if missing:
            raise CheckpointError(f"operator {id!r}: no report of slots {missing} in epoch {flow.epoch}")
        directory = layout.log_directory(id, flow.epoch, flow.run)
        self.journal.storage.sync(directory, directory.rsplit("/", 1)[0], directory.rsplit("/", 2)[0])
        return [found[slot] for slot in sorted(found)]

    def _collect(self, id: str, flow: Dataflow) -> dict[int, tuple[str, Report]]:
        storage = self.journal.storage
        directory = layout.log_directory(id, flow.epoch, flow.run)
        found: dict[int, tuple[str, Report]] = {}
        for name in storage.list(directory):
            path = f"{directory}/{name}"
            report = read_report(storage, path)
            other = found.setdefault(report.slot, (path, report))[1]
            if other.content != report.content or other.groups != report.groups:
                raise NotDeterministicError(
                    f"operator {id!r} gave two different results for slot {report.slot} in epoch {flow.epoch}"
                )
        return found

    def _event_times(self, flow: Dataflow) -> dict[str, int]:
        """The greatest event time of each watermark operator, this epoch's rows included."""
        times = dict(self.last.event_times) if self.last is not None else {}
        for id, observation in flow.observations.items():
            seen = _observed(observation)
            if seen is _PRUNED:
                column = quote(str(flow.resolved.event_times[id]))
                rows = flow.frame(flow.resolved.plan[id].inputs[0])
                seen = rows.selectExpr(f"max(unix_micros({column}))").collect()[0][0]
            if seen is not None:
                times[id] = max(times.get(id, seen), seen)
        return times

    def _configure(self, batch: DataFrame) -> None:
        """Tune the session of the batch, which is not the user's."""
        session = batch.sparkSession
        if self._configured is not session:
            cores = session.sparkContext.defaultParallelism
            session.conf.set("spark.sql.shuffle.partitions", str(max([cores, *self.slots.values()])))
            session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(self.settings.rows_per_arrow_batch))
            session.conf.set("spark.sql.adaptive.enabled", "false")
            self._configured = session

    def _keyed_run(self, resolved: Resolved, id: str, intent: Intent, final: bool) -> KeyedRun:
        state = self.last.operators.get(id, OperatorState()) if self.last is not None else OperatorState()
        watermark = END_OF_TIME if final else self._watermark(resolved, id, self.last)
        due = frozenset(
            group
            for group, (event, clock) in state.deadlines.items()
            if (event is not None and watermark is not None and event <= watermark)
            or (clock is not None and clock <= intent.clock)
        )
        epoch = Epoch(
            epoch=intent.epoch,
            clock=intent.clock,
            seed=intent.seed,
            watermark=watermark,
            due=due,
            snapshots=frozenset(self.housekeeping.snapshots_due(id, state, intent.epoch)),
        )
        head = Head(
            job=self.job,
            operator=id,
            checkpoint=self.journal.storage.root,
            cache=self.settings.cache,
            epoch=self.last.epoch if self.last is not None else -1,
            changed=state.changed or (None,) * self.groups,
            recent=tuple(logs_of(commit, id) for commit in self._recent),
            in_place=self.settings.in_place,
        )
        routing = Routing.even(self.groups, self.slots[id])
        return KeyedRun(
            head,
            epoch,
            routing,
            combine=self._folds.get(id, 1.0) < _COMBINE_BELOW,
            markers=bool(due) or self._least.get(id, 0) < _BUSY,
        )

    def _watermark(self, resolved: Resolved, id: str, commit: Commit | None) -> int | None:
        """The watermark after a commit: the least over the watermark operators above, `None` while one has no rows."""
        above = resolved.keyed[id].watermarks
        if commit is None or not above or any(w not in commit.event_times for w in above):
            return None
        return min(commit.event_times[w] - _delay(resolved, w) for w in above)

    def _record(self, intent: Intent, offsets: tuple[str, ...], outcome: _Outcome, final: bool) -> Commit:
        id = os.urandom(8).hex()
        operators = dict(self.last.operators) if self.last is not None else {}
        operators = {name: _carried(state) for name, state in operators.items()}
        for name, found in outcome.reports.items():
            layout_of = self._resolved(intent.version).keyed[name].layout
            before = operators.get(name, OperatorState())
            operators[name] = self._advanced(before, found, intent.epoch, id, layout_of)
        return Commit(
            epoch=intent.epoch,
            id=id,
            parent=self.last.id if self.last is not None else "",
            version=intent.version,
            clock=intent.clock,
            offsets=offsets,
            operators=operators,
            sinks=tuple(outcome.staged),
            event_times=outcome.event_times,
            final=final,
        )

    def _advanced(
        self, state: OperatorState, found: list[tuple[str, Report]], epoch: int, id: str, form: str
    ) -> OperatorState:
        changed = list(state.changed or (None,) * self.groups)
        snapshots = list(state.snapshots or (None,) * self.groups)
        deadlines = dict(state.deadlines)
        logs = []
        for path, report in found:
            if report.groups:
                size = sum(changes for _, changes in report.groups)
                logs.append(LogRef(report.slot, path, size, tuple(report.groups)))
            for group, _ in report.groups:
                changed[group] = (epoch, id)
            for group, at, commit, stored, size, checksum in report.snapshots:
                snapshots[group] = SnapshotRef(at, commit, stored, size, checksum)
            for group, (event, clock) in report.deadlines.items():
                deadlines.pop(group, None)
                if event is not None or clock is not None:
                    deadlines[group] = (event, clock)
        return OperatorState(
            logs=tuple(logs), changed=tuple(changed), snapshots=tuple(snapshots), deadlines=deadlines, layout=form
        )

    def _publish(self, commit: Commit) -> None:
        sinks = {o.id: code.load(o.code) for o in self._resolved(commit.version).plan.of(p.Sink)}
        for staged in commit.sinks:
            if staged.sink in sinks:
                sinks[staged.sink].publish(staged, self.spark)
        for staged in commit.sinks:
            if staged.sink in sinks:
                sinks[staged.sink].clean(staged)
                self.journal.storage.delete(layout.spool_directory(staged.sink, staged.epoch))

    def _resolved(self, version: int) -> Resolved:
        if version not in self._plans:
            self._plans[version] = resolve(self.spark, self.journal.plan(version))
        return self._plans[version]

    def _report(self, commit: Commit, outcome: _Outcome, times: dict[str, float]) -> None:
        rows = {id: sum(r.rows for _, r in found) for id, found in outcome.reports.items()}
        keys = {id: sum(r.keys for _, r in found) for id, found in outcome.reports.items()}
        for id, count in rows.items():
            if count:
                self._folds[id] = keys[id] / count
            self._least[id] = min(r.rows for _, r in outcome.reports[id])
        slowest: dict[str, float] = {}
        for found in outcome.reports.values():
            for _, report in found:
                for part, seconds in report.times.items():
                    slowest[f"slot.{part}"] = max(slowest.get(f"slot.{part}", 0.0), seconds)
        self.progress = Progress(
            epoch=commit.epoch,
            version=commit.version,
            clock=moment_of(commit.clock).isoformat(),
            rows=rows,
            keys=keys,
            watermarks={
                id: moment_of(seen - _delay(self.resolved, id)).isoformat() for id, seen in commit.event_times.items()
            },
            log_bytes=self.housekeeping.log_bytes,
            snapshots=sum(len(r.snapshots) for found in outcome.reports.values() for _, r in found),
            durations={**times, **slowest},
        )
        self.listener(self.progress)


class NotDeterministicError(MidstreamError):
    """Two attempts of a task disagree: the epoch is run again."""


_PRUNED = object()


def _observed(observation: Observation) -> Any:
    """Read an observation; `_PRUNED` if Spark never ran its node (a plain `get` would wait for ever)."""
    assert observation._jo is not None
    future = observation._jo.future()
    deadline = time.monotonic() + _OBSERVE_SECONDS
    while not future.isCompleted():  # it completes on Spark's listener thread, a moment after the job
        if time.monotonic() > deadline:
            return _PRUNED
        time.sleep(0.001)
    return observation.get["greatest"]


def _delay(resolved: Resolved, id: str) -> int:
    operator = resolved.plan[id]
    assert isinstance(operator, p.Watermark)
    return operator.delay


def _carried(state: OperatorState) -> OperatorState:
    """What stays of an operator's state in the next record: everything but the logs of the epoch."""
    return msgspec.structs.replace(state, logs=())
