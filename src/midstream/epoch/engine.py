"""The epoch, step by step: decide, journal, run, commit, publish, tidy up.

The engine is called once per micro-batch. What it promises is written in docs/protocol.md; the order of the steps in
`_run_and_commit` is that protocol.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from midstream.checkpoint import layout
from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.offsets import Feed, by_source, comparable
from midstream.checkpoint.records import Commit, Cut, Intent
from midstream.epoch import decision
from midstream.epoch.attempt import Outcome
from midstream.epoch.batch import Batch, batch_schema
from midstream.epoch.commit import next_record
from midstream.epoch.context import JobContext
from midstream.epoch.deadline import Limit
from midstream.epoch.follower import Follower
from midstream.epoch.gate import Gate
from midstream.epoch.history import History
from midstream.epoch.observed import Observed
from midstream.epoch.plans import Armed, Intents, Plans
from midstream.epoch.progress import progress_of
from midstream.epoch.publication import Publication
from midstream.epoch.runner import Runner
from midstream.errors import CheckpointError, JobError, PlanError
from midstream.events import After, Before, Progress, Step
from midstream.operators.resolved import Resolved, check_layout
from midstream.placement.assignment import Assignment
from midstream.placement.seating import Seating
from midstream.spark.exceptions import explained, has_lost_spark

T = TypeVar("T")


class Engine:
    """Runs the epochs of one job, and is the only one that commits.

    Its parts are each the only writer of what they hold: who else works on the job is given the parts it needs.
    """

    def __init__(self, context: JobContext, running: Resolved, cores: int) -> None:
        settings, journal = context.settings, context.journal
        self.context, self.gate = context, Gate()
        self.plans = Plans(context.spark, journal, running)
        self.housekeeping = Housekeeping(journal, settings.keep_epochs, settings.snapshot_budget)
        self.history = History(journal, self.housekeeping, context.groups)
        self.intents = Intents(context, self.plans, self.history)
        seating = Seating(context.spark, cores, settings.apart)
        self.assignment = Assignment(context.groups, seating, settings.defers, settings.standbys)
        self.observed = Observed()
        self.progress: Progress | None = None  # of the newest epoch
        self._follower: Follower | None = None
        self._publication = Publication(
            context.spark, journal, settings.publish_tries, settings.accept_lost_output, self.gate.stopping,
            context.listener,
        )  # fmt: skip
        self._runner = Runner(context, self.plans, self.history, self.assignment, self.housekeeping, self.observed)

    # --- before the first epoch ---

    def recover(self) -> None:
        """Take up the committed history, publish the newest epoch again, delete what was left half done."""
        self.take_up()
        for left in (layout.SHADOW, layout.REHEARSAL):
            self.context.journal.storage.delete(left)
        last = self.history.last
        if last is not None:
            self._publication.check(self.plans.running.plan, self.context.job, last)
            self._publish(last)
            self.housekeeping.discard(layout.SPOOL, last.epoch)

    def take_up(self) -> None:
        """Go on from the committed history; refuse a plan whose state is laid out in another way."""
        self.history.take_up()
        states = self.history.states
        for id, keyed in self.plans.running.keyed.items():
            if id in states:
                check_layout(id, states[id].layouts, keyed)

    def settle(self) -> None:
        """Find the executors, on a cluster, and write down which groups each has."""
        running = self.plans.running
        self.assignment.seating.warm()
        self.assignment.look_around(running.plan)
        self.plans.run(replace(running, plan=self.assignment.settled(running.plan, running)))

    # --- the protocol ---

    def epoch(self, number: int, batch: Batch) -> None:
        """Run the epoch of a batch, or publish it again if it was committed before a crash; the gate is held."""
        last = self.history.last
        before = comparable(last.offsets, batch.feeds) if last else ()
        now = comparable(batch.offsets, batch.feeds)
        verdict = decision.decide(last.epoch if last else None, before, number, now)
        if isinstance(verdict, decision.Refuse):
            raise CheckpointError(
                f"{verdict.reason}. The checkpoint {self.context.journal.storage.root} was changed by hand or copied "
                "in part; restore it whole, or start from a savepoint"
            )
        if isinstance(verdict, decision.Republish):
            assert last is not None
            self._publish(last)
            return
        self.run(batch, self.intents.of(number))

    def finish(self, feeds: tuple[Feed, ...]) -> None:
        """Run one more epoch, without rows, in which the watermark passes the end of time."""
        last = self.history.last
        if last is None or last.final:
            return
        with self.gate.between_epochs():
            rows = self.context.spark.newSession().createDataFrame([], batch_schema(feeds))
            self.run(Batch(rows, last.offsets, feeds, final=True), self.intents.of(last.epoch + 1))

    def run(self, batch: Batch, intent: Intent) -> None:
        """Run an epoch that was decided on, commit and publish it."""
        if self._follower is None:
            self._run_and_commit(batch, intent)
            return
        batch = replace(batch, rows=batch.rows.persist())  # the follower must see the same rows
        try:
            self._run_and_commit(batch, intent)
        finally:
            batch.rows.unpersist()

    def _run_and_commit(self, batch: Batch, intent: Intent) -> None:
        started, times = time.perf_counter(), dict[str, float]()
        self.history.begin_epoch()
        intent, outcome = self._run_under(batch, intent, times)
        resolved, before = self.plans.version(intent.version), self.history.offsets
        beginning = self.history.beginning(intent, resolved, final=batch.final)
        commit = next_record(beginning, batch.offsets, outcome, self._publication.lost)
        self.context.guard()
        self._timed(times, Step.COMMIT, intent.epoch, lambda: self.context.journal.write_commit(commit))
        reports = {id: [report for _, report in found] for id, found in outcome.reports.items()}
        self._publication.lost.clear()
        self.history.append(commit)
        self.observed.after(batch.rows, reports)
        self.assignment.after(reports)
        if (armed := self.plans.disarm(intent.version)) is not None:
            self.plans.run(resolved)
            armed.committed(Cut(commit.epoch, by_source(before, batch.feeds)))
        self._timed(times, Step.PUBLISH, intent.epoch, lambda: self._publish(commit))
        self.history.end_epoch()
        self.housekeeping.after(commit, reports)
        times["total"] = time.perf_counter() - started
        if self._follower is not None:
            self._follower.follow(batch, intent)
        self._report(commit, outcome, times)

    def _run_under(self, batch: Batch, intent: Intent, times: dict[str, float]) -> tuple[Intent, Outcome]:
        """Run an epoch under the plan it was decided to run under; under the old one where a new one fails."""
        armed = self.plans.armed_as(intent.version)
        if armed is None:
            return intent, self._run_timed(times, batch, intent)
        armed.begun()
        try:
            deadline = self.context.settings.cut_deadline
            with Limit(deadline, "the first epoch under the new plan", self.context.cancel_epoch) as limit:
                return intent, self._run_timed(times, batch, intent, limit.passed.is_set)
        except Exception as error:
            if has_lost_spark(self.context.spark):  # not the new plan's fault: it is applied after the next start
                raise
            self._roll_back(armed, intent, error)
        again = self.intents.under_running_plan(intent)
        return again, self._run_timed(times, batch, again)

    def _roll_back(self, armed: Armed, intent: Intent, error: Exception) -> None:
        """Give up a plan under which its first epoch has failed."""
        self.plans.disarm()
        armed.broken(explained(error))
        homes = [layout.home_of(id, self.history.born(id, intent.epoch)) for id in armed.resolved.keyed]
        self.housekeeping.drop_logs(homes, intent.epoch)

    def _run_timed(
        self,
        times: dict[str, float],
        batch: Batch,
        intent: Intent,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        witness = self._follower.witness if self._follower is not None else None
        run = self._runner.run
        return self._timed(times, Step.RUN, intent.epoch, lambda: run(batch, intent, witness, is_late))

    def _timed(self, times: dict[str, float], step: Step, epoch: int, action: Callable[[], T]) -> T:
        self.context.listener(Before(step, epoch))
        started = time.perf_counter()
        result = action()
        times[step.value] = time.perf_counter() - started
        self.context.listener(After(step, epoch))
        return result

    def _publish(self, commit: Commit) -> None:
        self._publication(commit, self.plans.of(commit))

    def _report(self, commit: Commit, outcome: Outcome, times: dict[str, float]) -> None:
        moving = {id: len(move.waiting) for id, move in self.assignment.moves.items()}
        self.progress = progress_of(
            commit, outcome, self.plans.running.plan, times, self.housekeeping.log_bytes, moving, self.observed.sizes
        )
        self.context.listener(self.progress)

    # --- asked for between two epochs ---

    def forget(self, id: str, born: int) -> None:
        """Drop the state of a removed operator with the next epoch, also if the driver is killed before it."""
        with contextlib.nullcontext() if self.gate.threads.has_this else self.gate.between_epochs():
            armed = self.plans.armed
            if armed is not None and id in armed.resolved.keyed:
                raise PlanError(f"a modification that is about to be applied brings {id!r} back; wait for it first")
            if id in self.plans.running.keyed or id not in self.history.states:
                raise PlanError(f"operator {id!r} was brought back, or is forgotten, in the meantime")
            self.history.forget(id, born)

    def follow(self, follower: Follower) -> None:
        """Show every epoch from now on to a follower; one at a time."""
        if self._follower is not None:
            raise JobError("the job has a shadow already; promote or discard that one first")
        self._follower = follower

    def unfollow(self, follower: Follower) -> bool:
        """Stop showing epochs to a follower; False if it was not shown them."""
        if self._follower is not follower:
            return False
        self._follower = None
        return True

    def is_followed_by(self, follower: Follower) -> bool:
        """Whether a follower is shown every epoch."""
        return self._follower is follower
