"""A running flow: how it is started, watched and stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from midstream.checkpoint.lease import Lease
from midstream.checkpoint.offsets import tags
from midstream.checkpoint.storage import Storage
from midstream.epoch.engine import Engine
from midstream.epoch.gate import StopRequestedError
from midstream.epoch.query import Query
from midstream.errors import JobError, PlanError
from midstream.events import Progress
from midstream.flow.flow import Flow
from midstream.flow.triggers import Trigger
from midstream.job.explain import explained_plan
from midstream.job.savepoint.write import pinned, refuse_used, write_savepoint
from midstream.modifications import changes
from midstream.modifications.changes import Change
from midstream.modifications.handle import Modification
from midstream.modifications.queue import Modifications
from midstream.modifications.rehearsal import Rehearsal
from midstream.modifications.shadow import Shadow
from midstream.placement.status import MoveStatus, SlotStatus
from midstream.plan.plan import Plan
from midstream.spark.exceptions import explained

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class Status:
    """Where a job stands."""

    name: str
    active: bool
    epoch: int  # the newest committed one, -1 before the first
    version: int
    message: str


class Job:
    """The handle of something running."""

    def __init__(self, flow: Flow, engine: Engine, lease: Lease, trigger: Trigger) -> None:
        self.name = flow.name
        self._engine, self._lease = engine, lease
        context, gate, plans, history = engine.context, engine.gate, engine.plans, engine.history
        self._query = Query(context, gate, plans, history, engine.epoch, flow.sources, trigger)
        self._modifications = Modifications(
            context, gate, plans, history, engine.intents, engine.assignment, self._query, self._rehearsal()
        )
        self._shadow: Shadow | None = None
        self._done = threading.Event()
        self._error: BaseException | None = None

    @property
    def id(self) -> str:
        """The id of the job, the same over restarts."""
        return self._engine.context.job

    @property
    def plan(self) -> Plan:
        """The running plan."""
        return self._engine.plans.running.plan

    def explain(self) -> str:
        """Return the running plan as a tree, and what the newest epoch says of its keys, with what would help."""
        return explained_plan(self.plan, self.last_progress, lambda id: self._engine.assignment.slots(self.plan, id))

    @property
    def query(self) -> StreamingQuery | None:
        """The Spark query at hand; a modification of sources puts another in its place."""
        return self._query.current

    @property
    def is_active(self) -> bool:
        """Whether the job is still running."""
        return not self._done.is_set()

    @property
    def exception(self) -> BaseException | None:
        """The error that ended the job, if one did."""
        return self._error

    @property
    def last_progress(self) -> Progress | None:
        """The report of the newest committed epoch of this process."""
        return self._engine.progress

    @property
    def status(self) -> Status:
        """Where the job stands."""
        last = self._engine.history.last
        if self._error is not None:
            message = f"ended with an error: {self._error}"
        elif not self.is_active:
            message = "the input has ended" if last is not None and last.final else "stopped"
        elif self._engine.gate.is_running:
            message = "running an epoch"
        else:
            message = "waiting for rows"
        return Status(self.name, self.is_active, last.epoch if last else -1, self.plan.version, message)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; raise its error if it failed. False: it still runs after `timeout` seconds."""
        if self.is_active:
            self._engine.gate.threads.refuse("await_termination()")
        if not self._done.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Let the epoch at hand finish, then stop; does nothing if the job has ended.

        Called from a listener or a sink, it returns at once, and the job stops after the epoch at hand.
        """
        if self.is_active and self._engine.gate.threads.has_this:
            self._engine.gate.stopping.set()
            threading.Thread(target=self.stop, name=f"midstream-stop-{self.name}", daemon=True).start()
        elif self.is_active:
            self._query.stop()
            self._done.wait()

    def modify(self, *steps: Change | Flow) -> Modification:
        """Change the running plan in one atomic step, at the beginning of the next epoch; the job goes on.

        Returns at once: `wait()` on what is returned waits for the cut. The changes are validated against the running
        plan and tried on rows of the last epochs first. If the first epoch fails under the new plan, it is run again
        under the old one: a bad modification never stops a job.

        Args:
            steps: changes such as `ms.replace("big", function)`, or one whole new `Flow`.
        """
        return self._modify(_changes("modify", steps))

    def _modify(self, steps: Sequence[Change]) -> Modification:
        return Modification(self._modifications.submit(steps), self._modifications)

    def shadow(self, *steps: Change | Flow) -> Shadow:
        """Run the changed plan beside the real one, from the next epoch on, and compare the rows of their sinks.

        Returns when the changes are validated and tried, as those of `modify` are. The shadow begins with the state
        of the job and keeps its own from there on; nothing of the job is touched. It ends when the job is modified
        meanwhile.

        Args:
            steps: as for `modify`.
        """
        if not self.is_active:
            raise JobError("the job has ended; only a running one can have a shadow")
        found = _changes("shadow", steps)
        rehearsal = self._rehearsal()  # not that of the modifications, which may be trying something else
        self._shadow = Shadow(
            self._engine, found, lambda plan: rehearsal(plan, self._query.feeds), lambda: self._modify(found)
        )
        return self._shadow

    def _rehearsal(self) -> Rehearsal:
        engine = self._engine
        return Rehearsal(engine.context, engine.plans, engine.history, engine.assignment, engine.observed)

    @property
    def slots(self) -> list[SlotStatus]:
        """Where every slot of every keyed operator is, and what it does besides processing rows."""
        return self._engine.assignment.status(self._engine.plans.running)

    @property
    def moves(self) -> list[MoveStatus]:
        """How far groups have come that are on their way to other executors; empty while none are."""
        return self._engine.assignment.moving(self._engine.history.last)

    @property
    def modifications(self) -> list[Modification]:
        """The modifications of this job, oldest first; of a long history the newest fifty."""
        return [Modification(one, self._modifications) for one in self._modifications.known]

    def forget(self, id: str) -> None:
        """Delete the state of an operator that was removed, with the next epoch, or the offsets of a source."""
        states = self._engine.history.states
        if any(operator.id == id for operator in self.plan.operators):
            remove = "remove_source" if id in tags(self._query.feeds) else "remove"
            raise PlanError(f"operator {id!r} is part of the running plan; remove it first, with ms.{remove}({id!r})")
        if id and id in tags(self._query.feeds):
            if not self.is_active:
                raise JobError(f"the job has ended; start it again to let it forget source {id!r}")
            self._engine.gate.threads.refuse("forget()")
            self._query.forget(id)
        elif id in states:
            if not self.is_active:
                raise JobError(f"the job has ended; start it again to let it forget operator {id!r}")
            self._engine.forget(id, states[id].born)
        else:
            raise PlanError(f"there is no removed operator or source {id!r} to forget")

    def savepoint(self, path: str | PathLike[str]) -> str:
        """Write the whole state, with plan and offsets, as Parquet to a new directory, while the job goes on.

        It is the state as of the newest committed epoch. Give it to `flow.start(savepoint=...)`.
        """
        self._engine.gate.threads.refuse("savepoint()")
        engine, target = self._engine, Storage.at(path)
        refuse_used(target)
        with pinned(
            engine.gate, engine.plans, engine.history, engine.housekeeping, lambda: self._query.feeds
        ) as moment:
            return write_savepoint(engine.context, engine.assignment, moment, target)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self, drifted: Plan | None) -> None:
        self._modifications.recover()
        last = self._engine.history.last
        if last is not None and last.final:
            self._end()
            return
        self._engine.intents.adopt(self._modifications.drift(drifted) if drifted is not None else None)
        self._modifications.start_query()
        threading.Thread(target=self._watch, name=f"midstream-{self.name}", daemon=True).start()

    def _watch(self) -> None:
        self._engine.gate.threads.add()
        try:
            self._query.await_end()
            if self._query.trigger.end_of_input and not self._engine.gate.stopping.is_set():
                self._engine.finish(self._query.feeds)
        except BaseException as error:  # whatever ended the query is the job's error
            own = self._query.error  # of an epoch, as it was: Spark gives it on as text
            if own is not None or not self._was_turned_away(error):
                self._error = own if own is not None else explained(error)
        finally:
            self._end()

    def _was_turned_away(self, error: BaseException) -> bool:
        """Whether a query has ended because no epoch may begin: the job is being stopped."""
        return self._engine.gate.stopping.is_set() and StopRequestedError.__name__ in str(error)

    def _end(self) -> None:
        with contextlib.ExitStack() as last:  # whatever fails on the way: whoever waits for the end gets it
            last.callback(self._done.set)
            last.callback(self._engine.gate.threads.clear)
            last.callback(self._lease.release)
            last.callback(self._engine.assignment.seating.close)
            if self._shadow is not None:
                last.callback(self._shadow.close)
            self._modifications.close("the job has ended")


def _changes(what: str, steps: Sequence[Change | Flow]) -> list[Change]:
    """Check what a job is to become: changes, or one whole flow."""
    if any(isinstance(step, Flow) for step in steps) and len(steps) > 1:
        raise PlanError(f"give {what} either changes or one whole flow, not both")
    for step in steps:
        if not isinstance(step, (Flow, Change)):
            raise PlanError(f"{what} takes changes such as ms.replace(...), or one flow, not {step!r}")
    if not steps:
        raise PlanError(f"{what} needs at least one change, such as ms.replace(id, function)")
    return [changes.become(step.plan()) if isinstance(step, Flow) else step for step in steps]
