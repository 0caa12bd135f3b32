"""One run of an epoch's Spark jobs: sinks staged, one report per slot, event times observed.

A run has a name of its own, and its files lie apart from those of other runs of the same epoch: they do not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream import events
from midstream.checkpoint import layout
from midstream.checkpoint.records import Report, Staged
from midstream.checkpoint.storage import Storage
from midstream.epoch.dataflow import SEEN, Dataflow
from midstream.errors import CheckpointError, MidstreamError
from midstream.events import Event
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.kind import EVENT_TIME, FAILED_ROWS, LATE
from midstream.operators.kinds import kind_of
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.errors import failures
from midstream.plan import code
from midstream.plan import plan as p
from midstream.sinks.contract import Sink, Staging
from midstream.spark.exceptions import UserCodeError, explained
from midstream.state.changelog import read_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_OBSERVE_SECONDS = 5.0


class NotDeterministicError(MidstreamError):
    """Two attempts of a task disagree: the epoch is run again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a successful run of an epoch leaves."""

    reports: dict[str, list[tuple[str, Report]]]  # operator -> (path, report) per slot
    staged: list[Staged]
    event_times: dict[str, int]  # watermark operator -> greatest event time of the epoch's rows
    late: dict[str, int]  # keyed function -> rows that its windows did not take
    errors: dict[str, int] = field(default_factory=dict)  # map_arrow -> rows that it put aside


@dataclass(slots=True)
class Attempt:
    """A run of an epoch under one plan."""

    resolved: Resolved
    batch: DataFrame
    epoch: int
    job: str
    storage: Storage
    tags: dict[str, int]  # source -> its tag in the batch
    keyed: dict[str, KeyedRun]
    listener: Callable[[Event], None]
    witness: Sink | None = None  # sees the rows of every sink too
    clock: int = 0  # of the epoch
    execution: Callable[[], Any] = lambda: None  # see `Dataflow`
    on_trial: frozenset[str] = frozenset()  # operators that must not put all of their rows aside
    run: str = field(default_factory=lambda: os.urandom(4).hex())
    _ran_again: bool = False  # some operators, after their reports were read

    def __call__(self) -> Outcome:
        """Run all jobs of the epoch."""
        flow = self._flow()
        begun: list[tuple[Sink, Staging]] = []
        try:
            flow.prepare()
            staged = []
            for operator in self.resolved.plan.of(p.Sink):
                spool = self.storage.path(layout.spool_directory(operator.id, self.epoch, self.run))
                begun.append((code.load(operator.code), Staging(operator.id, self.job, self.epoch, self.run, spool)))
                rows = flow.frame(operator.inputs[0])
                if self.witness is not None:
                    rows = flow.kept(rows)
                    self.witness.stage(rows, begun[-1][1])
                staged.append(begun[-1][0].stage(rows, begun[-1][1]))
                self.listener(events.Staged(self.epoch, operator.id))
            reports = {id: self._reports(flow, id) for id in self.keyed}
            errors = self._observed(flow, FAILED_ROWS)
            outcome = Outcome(reports, staged, self._event_times(flow), self._late(flow), errors)
            self._refuse_hopeless(flow, reports, errors)
            if self._ran_again:
                self._refuse_failed()
            return outcome
        except BaseException as error:
            for sink, staging in begun:
                sink.clean(staging)
            if isinstance(error, Exception):  # it may be for want of the rows of a slot that has failed
                self._refuse_failed()
            raise
        finally:
            flow.close()

    def without_sinks(self) -> None:
        """Run all operators and write nothing that counts: a rehearsal."""
        flow = self._flow()
        try:
            flow.prepare()
            for operator in self.resolved.plan.of(p.Sink):
                flow.frame(operator.inputs[0]).write.format("noop").mode("overwrite").save()
            reports = {id: self._reports(flow, id) for id in self.keyed}
            self._refuse_failed()
            self._refuse_hopeless(flow, reports, self._observed(flow, FAILED_ROWS))
        finally:
            flow.close()

    def _flow(self) -> Dataflow:
        return Dataflow(
            self.resolved, self.batch, self.epoch, self.run, self.keyed, self.tags, self.clock, self.execution
        )

    def _reports(self, flow: Dataflow, id: str) -> list[tuple[str, Report]]:
        """Collect one report per slot; run the operator on its own where a slot had no rows or was left out."""
        slots = sorted(set(self.keyed[id].routing.owners))
        found = self._collect(id)
        if any(slot not in found for slot in slots):
            self._ran_again = True
            flow.run_alone(id)
            found = self._collect(id)
        missing = [slot for slot in slots if slot not in found]
        if missing:
            raise CheckpointError(f"operator {id!r}: no report of slots {missing} in epoch {self.epoch}")
        directory = layout.log_directory(self.keyed[id].head.home, self.epoch, self.run)
        self.storage.sync(directory, directory.rsplit("/", 1)[0], directory.rsplit("/", 2)[0])
        return [found[slot] for slot in sorted(found)]

    def _refuse_failed(self) -> None:
        """Raise what a slot has reported instead of raising it: also one that ran again after its reports were read."""
        for id in self.keyed:
            self._collect(id)

    def _collect(self, id: str) -> dict[int, tuple[str, Report]]:
        directory = layout.log_directory(self.keyed[id].head.home, self.epoch, self.run)
        found: dict[int, tuple[str, Report]] = {}
        for name in self.storage.list(directory):
            path = f"{directory}/{name}"
            report = read_report(self.storage, path)
            if report.failure:
                raise explained(Exception(report.failure), f" (operator {id!r})")
            other = found.setdefault(report.slot, (path, report))[1]
            if other.content != report.content or other.groups != report.groups:
                raise NotDeterministicError(
                    f"operator {id!r} produced two different results for slot {report.slot} in epoch {self.epoch}"
                )
        return found

    def _observed(self, flow: Dataflow, what: str) -> dict[str, Any]:
        """What was observed of rows on their way, by operator; worked out again where Spark never came by."""
        found: dict[str, Any] = {}
        for id, observation in flow.observed(what).items():
            found[id] = _observed(observation)
            if found[id] is _PRUNED:
                self._ran_again = True
                found[id] = kind_of(self.resolved.plan[id]).observed(self.resolved.plan[id], flow)
        return found

    def _event_times(self, flow: Dataflow) -> dict[str, int]:
        """The greatest event time that each watermark operator has seen, if it has seen one."""
        return {id: seen for id, seen in self._observed(flow, EVENT_TIME).items() if seen is not None}

    def _late(self, flow: Dataflow) -> dict[str, int]:
        """How many rows the windows of keyed functions did not take."""
        counts = self._observed(flow, LATE)
        return {windows.of: counts[windows.id] for windows in self.resolved.plan.of(p.Spread) if windows.id in counts}

    def _refuse_hopeless(
        self, flow: Dataflow, reports: dict[str, list[tuple[str, Report]]], errors: dict[str, int]
    ) -> None:
        """Raise what new code has failed with, if it has put aside all that it got."""
        for id in sorted(self.on_trial):
            found = [report for _, report in reports.get(id, ())]
            failed = sum(report.errors for report in found) + errors.get(id, 0)
            if not failed or any(report.succeeded for report in found):
                continue
            if id in errors and flow.frame(self.resolved.plan[id].inputs[0]).count() > failed:
                continue  # its task makes no report of what went well
            first = failures(id, flow).select("reason", "traceback").first()
            assert first is not None
            raise UserCodeError(
                f"the job's own code failed: {first.reason} (operator {id!r}, which put all that it got aside, "
                f"{failed} rows or timers)\n{first.traceback}"
            )


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
    return observation.get[SEEN]
