"""A running flow: how it is started, watched and stopped."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

import msgspec

from midstream import changes, code
from midstream import plan as p
from midstream import storage as layout
from midstream.changes import Change
from midstream.durations import Duration, micros
from midstream.engine import Engine, Settings, StopRequestedError
from midstream.errors import CheckpointError, PlanError
from midstream.events import Event, Progress
from midstream.failures import explained
from midstream.flow import Flow, Trigger
from midstream.java import require_java
from midstream.journal import Journal, Lease
from midstream.modifications import Modification, Modifications
from midstream.plan import Plan
from midstream.resolve import resolve
from midstream.routing import DEFAULT_GROUPS, MAX_GROUPS
from midstream.savepoint import restore_savepoint, write_savepoint
from midstream.sources.tagged import tagged_union
from midstream.state.cache import discard_other_boots
from midstream.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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

    def __init__(self, flow: Flow, engine: Engine, lease: Lease, trigger: Trigger, heartbeat: bool) -> None:
        self.name = flow.name
        self.query: StreamingQuery | None = None
        self._flow, self._engine, self._lease, self._trigger = flow, engine, lease, trigger
        self._heartbeat = heartbeat
        self._modifications = Modifications(engine)
        self._done = threading.Event()
        self._error: BaseException | None = None

    @property
    def id(self) -> str:
        """The id of the job, the same over restarts."""
        return self._engine.job

    @property
    def plan(self) -> Plan:
        """The running plan."""
        return self._engine.resolved.plan

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
        last = self._engine.last
        if self._error is not None:
            message = f"ended with an error: {self._error}"
        elif not self.is_active:
            message = "the input has ended" if last is not None and last.final else "stopped"
        elif self._engine.lock.locked():
            message = "running an epoch"
        else:
            message = "waiting for rows"
        return Status(self.name, self.is_active, last.epoch if last else -1, self.plan.version, message)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; raise its error if it failed. False: it still runs after `timeout` seconds."""
        if not self._done.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Let the epoch at hand finish, then stop; does nothing if the job has ended."""
        self._engine.stopping.set()
        with self._engine.lock:  # an epoch under way holds it
            pass
        if self.query is not None and self.is_active:
            with _quiet(self._engine.spark):
                self.query.stop()
                self._done.wait()

    def modify(self, *steps: Change | Flow) -> Modification:
        """Change the running plan in one atomic step, at the beginning of the next epoch; the job goes on.

        Returns at once: `wait()` on what is returned waits for the cut. The changes are validated against the running
        plan and tried on rows of the last epochs first. If the first epoch fails under the new plan, it is run again
        under the old one: a bad modification never stops a job.

        Args:
            steps: changes such as `ms.replace("big", function)`, or one whole new `Flow`.
        """
        whole = [step for step in steps if isinstance(step, Flow)]
        if whole and len(steps) > 1:
            raise PlanError("give modify either changes or one whole flow, not both")
        found = [changes.become(step.plan()) if isinstance(step, Flow) else step for step in steps]
        return self._modifications.submit(found)

    @property
    def modifications(self) -> list[Modification]:
        """The modifications of this job, oldest first; of a long history the newest fifty."""
        return list(self._modifications.known)

    def forget(self, id: str) -> None:
        """Delete the state of an operator that was removed, with the next epoch; it cannot be undone then."""
        last = self._engine.last
        if any(operator.id == id for operator in self.plan.operators):
            raise PlanError(f"operator {id!r} is part of the running plan; remove it first, with ms.remove({id!r})")
        if last is None or id not in last.operators:
            raise PlanError(f"there is no state of an operator {id!r} to forget")
        self._engine.forgotten.add(id)

    def savepoint(self, path: str | PathLike[str]) -> str:
        """Write the whole state, with plan and offsets, as Parquet to a new directory, while the job goes on.

        It is the state as of the newest committed epoch. Give it to `flow.start(savepoint=...)`.
        """
        return write_savepoint(self._engine, Storage.at(path))

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self) -> None:
        self._modifications.recover()
        self._engine.adopt()
        last = self._engine.last
        if last is not None and last.final:
            self._end()
            return
        spark, trigger = self._engine.spark, self._trigger
        stream = tagged_union(spark, self._flow.sources, heartbeat=self._heartbeat)
        writer = stream.writeStream.foreachBatch(self._engine.on_batch).queryName(self._engine.query_name)
        writer = writer.option("checkpointLocation", self._engine.journal.storage.for_spark(layout.SPARK))
        if trigger.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{trigger.interval // 1000} milliseconds")
        self.query = writer.start()
        threading.Thread(target=self._watch, name=f"midstream-{self.name}", daemon=True).start()

    def _watch(self) -> None:
        assert self.query is not None
        try:
            self.query.awaitTermination()
            if self._trigger.end_of_input and not self._engine.stopping.is_set():
                self._engine.finish()
        except BaseException as error:  # whatever ended the query is the job's error
            own = self._engine.error
            if not isinstance(own, StopRequestedError) and not self._stopped_by(error):
                self._error = own if own is not None else explained(error)
        finally:
            self._end()

    def _stopped_by(self, error: BaseException) -> bool:
        return self._engine.stopping.is_set() and "StopRequestedError" in str(error)

    def _end(self) -> None:
        self._modifications.close("the job has ended")
        self._lease.release()
        self._done.set()


def start(
    flow: Flow,
    checkpoint: str | PathLike[str],
    *,
    trigger: Trigger,
    on_drift: str = "fail",
    savepoint: str | PathLike[str] | None = None,
    groups: int | None = None,
    cache: str | PathLike[str] | None = None,
    keep_epochs: int = 10,
    rows_per_arrow_batch: int = 100_000,
    restore_in_place: bool = False,
    cut_deadline: Duration = "60 seconds",
    clock: Callable[[], int] | None = None,
    listener: Callable[[Event], None] | None = None,
) -> Job:
    """Start a flow; the options that `Flow.start` passes on.

    Args:
        flow: what to run.
        checkpoint: as in `Flow.start`, like the next four.
        trigger: when an epoch begins.
        on_drift: what to do if the flow has changed.
        savepoint: where to begin.
        groups: number of key-groups.
        cache: directory for the local copy of the state (a directory of your user below the system's temporary one).
        keep_epochs: how many committed epochs stay restorable.
        rows_per_arrow_batch: rows per batch between the JVM and Python.
        restore_in_place: read snapshots where they are instead of copying them first, where the store is a disk.
        cut_deadline: how long a dry run, and the first epoch under a new plan, may take before it is given up.
        clock: gives microseconds since 1970; the wall clock by default.
        listener: called with every event of `midstream.events`, in the thread of the epoch.
    """
    if on_drift not in ("fail", "keep", "apply"):
        raise PlanError(f"on_drift is 'fail', 'keep' or 'apply', not {on_drift!r}")
    require_java()
    if not flow.sources:
        raise PlanError(f"flow {flow.name!r} has no source; add one with flow.source(id, streaming_dataframe)")
    spark = next(iter(flow.sources.values())).sparkSession
    _use_this_python(spark)
    resolve(spark, flow.plan())
    if groups is not None and not 1 <= groups <= MAX_GROUPS:
        raise PlanError(f"groups must lie between 1 and {MAX_GROUPS}, not {groups}")
    storage = Storage.at(checkpoint)
    lease = Lease(storage)
    try:
        journal = Journal(storage)
        identity = journal.identity()
        if savepoint is not None:
            if identity is not None:
                raise CheckpointError(
                    f"{storage.root} holds a job already; start from the savepoint {savepoint} with a new checkpoint"
                )
            identity = restore_savepoint(spark, Storage.at(savepoint), storage, flow, groups)
        if identity is None:
            identity = journal.create(uuid.uuid4().hex, groups or DEFAULT_GROUPS)
        if groups not in (None, identity.groups):
            raise CheckpointError(
                f"the job of {storage.root} has {identity.groups} groups, fixed for its life; write a savepoint and "
                f"start from it with groups={groups}"
            )
        plan = _plan_to_run(journal, flow, on_drift)
        directory = os.fspath(cache) if cache is not None else _default_cache()
        discard_other_boots(directory, identity.job)
        engine = Engine(
            spark=spark,
            journal=journal,
            job=identity.job,
            query_name=f"{flow.name}-{identity.job[:8]}",
            groups=identity.groups,
            resolved=resolve(spark, plan),
            sources=tuple(flow.sources),
            cores=spark.sparkContext.defaultParallelism,
            settings=Settings(
                directory,
                keep_epochs,
                rows_per_arrow_batch=rows_per_arrow_batch,
                in_place=restore_in_place,
                cut_deadline=micros(cut_deadline) / 1e6,
            ),
            clock=clock or _wall_clock,
            listener=listener or _ignore,
        )
        for operator in plan.of(p.Sink):
            code.load(operator.code).open(spark, operator.id, identity.job)
        engine.recover()
        journal.write_plan(plan)
        job = Job(flow, engine, lease, trigger, _heartbeat(flow, engine, trigger))
        job._begin()
        return job
    except BaseException:
        lease.release()
        raise


def _use_this_python(spark: SparkSession) -> None:
    """On one host let tasks run in the Python of the driver: Spark would take the first `python3` on the PATH."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


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


def _plan_to_run(journal: Journal, flow: Flow, on_drift: str) -> Plan:
    """Compare the script's flow with the plan that the checkpoint ran last."""
    new = flow.plan()
    old = journal.running_plan()
    if old is None:
        return new
    new = p.inheriting(old, new)
    drift = p.difference(old, new)
    if not drift:
        return msgspec.structs.replace(new, version=old.version)
    if on_drift == "keep":
        return p.with_sinks_of(old, new)
    if on_drift == "fail":
        raise PlanError(
            f"flow {flow.name!r} differs from plan version {old.version} of the checkpoint {journal.storage.root}: "
            f"{drift}. Start with on_drift='apply' to go on with this flow, or with on_drift='keep' for the old plan"
        )
    p.check_state_fits(old, new)
    return msgspec.structs.replace(new, version=max(journal.versions()) + 1)


def _heartbeat(flow: Flow, engine: Engine, trigger: Trigger) -> bool:
    """Tell whether the query has a heartbeat: decided at the first start, since Spark counts the sources of a query."""
    if engine.last is None:
        return not trigger.once
    extra = len(engine.last.offsets) - len(flow.sources)
    if extra not in (0, 1):
        raise CheckpointError(
            f"the checkpoint {engine.journal.storage.root} has offsets of {len(engine.last.offsets)} sources (one may "
            f"be the heartbeat); the flow has {len(flow.sources)}: {', '.join(flow.sources)}. Sources cannot be added "
            "or removed yet: start with the sources it had, or with a new checkpoint"
        )
    return extra == 1


def _default_cache() -> str:
    return os.path.join(tempfile.gettempdir(), f"midstream-{getpass.getuser()}")


def _wall_clock() -> int:
    return time.time_ns() // 1000


def _ignore(event: Event) -> None:
    return None
