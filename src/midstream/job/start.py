"""Starting a flow: its options, its checkpoint, and what to do when the script differs from the plan that ran last."""

from __future__ import annotations

import contextlib
import getpass
import os
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

import msgspec

from midstream.checkpoint.exclusive import Exclusive
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.records import Identity
from midstream.checkpoint.storage import Storage
from midstream.durations import Duration, micros
from midstream.epoch.clock import EpochClock
from midstream.epoch.context import JobContext
from midstream.epoch.engine import Engine
from midstream.epoch.settings import Settings
from midstream.errors import CheckpointError, MidstreamError, PlanError, StateError
from midstream.events import Event, ignore
from midstream.flow.flow import Flow
from midstream.flow.triggers import Trigger
from midstream.job.job import Job
from midstream.job.savepoint.restore import restore_savepoint
from midstream.job.store import check_kept, check_where_it_runs
from midstream.modifications.relocations import rebalance
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.compatibility import (
    check_partitioning,
    check_state_fits,
    difference,
    has_same_slots,
    inheriting,
    with_all_slots_of,
    with_sinks_of,
    with_slots_of,
)
from midstream.plan.plan import Plan
from midstream.plan.routing import DEFAULT_GROUPS, MAX_GROUPS
from midstream.spark.java import require_java
from midstream.state.location import discard_other_boots
from midstream.state.stores.kinds import DEFAULT, store_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLDER = (
    " The checkpoint was written by an older Midstream, which knew code by less than what it reaches, so all code "
    "counts as changed this once: if you have changed none, on_drift='apply' is right."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a job outside its flow, which `Flow.start` passes on.

    Attributes:
        cache: directory for the local copy of the state: a directory of your user below the system's temporary one,
            or, on a cluster, the working directory of each executor. Executors never share a copy.
        keep_epochs: how many committed epochs stay restorable.
        rows_per_arrow_batch: rows per batch between the JVM and Python.
        store: the kind of store that groups are kept in: "lmdb"; "runs", on one host, on trial; or one of another
            package, by where it is imported from, "package.module:Name": a `StoreKind`, see
            `midstream.state.stores.contract`. It is fixed for the job's life; start from a savepoint to exchange it.
        restore_in_place: read snapshots where they are instead of copying them first, where the store is a disk.
        prefetch_budget: bytes of state that a slot copies per epoch beside its work: what it reads in place, what it
            will serve after a move, what it has lost.
        prefetch_time: how long that may take in an epoch; whichever comes first. Rows whose state is not there by then
            wait for it, on a cluster, and the epoch ends without them.
        standbys: on a cluster, how many second copies of every group other executors keep, which follow along epoch by
            epoch: after the loss of an executor they serve its groups at once, and a move to them is only a flip.
        snapshot_budget: bytes of snapshots that are written per epoch, besides a quarter of what is logged.
        store_bytes_per_second: read snapshots no faster than this, in each task; 0: as fast as the store is. For
            experiments with a store that is far away.
        on_join: what an executor gets that joins a running job: "ignore": nothing until it is asked for; "rebalance":
            its share, with `ms.rebalance()`, once Python is started on it, or the log says why it gets none.
        cut_deadline: how long a dry run, and the first epoch under a new plan, may take before it is given up.
        publish_tries: how often a sink is asked to publish an epoch, with growing pauses, before the job stops.
        on_lost_output: what to do if a sink has lost rows that were published to it: "fail", or "accept" to go on
            without them.
        clock: gives microseconds since 1970; the wall clock by default, whose jumps are followed after a minute only.
        listener: called with every event of `midstream.events`, in the thread of the epoch.
    """

    cache: str | PathLike[str] | None = None
    keep_epochs: int = 10
    rows_per_arrow_batch: int = 100_000
    store: str = DEFAULT
    restore_in_place: bool = False
    prefetch_budget: int = 64 << 20
    prefetch_time: Duration = "50 milliseconds"
    standbys: int = 0
    snapshot_budget: int = 1 << 20
    store_bytes_per_second: int = 0
    on_join: str = "ignore"
    cut_deadline: Duration = "60 seconds"
    publish_tries: int = 5
    on_lost_output: str = "fail"
    clock: Callable[[], int] | None = None
    listener: Callable[[Event], None] | None = None

    def __post_init__(self) -> None:
        if self.on_join not in ("ignore", "rebalance"):
            raise PlanError(f"on_join is 'ignore' or 'rebalance', not {self.on_join!r}")
        if self.on_lost_output not in ("fail", "accept"):
            raise PlanError(f"on_lost_output is 'fail' or 'accept', not {self.on_lost_output!r}")
        if self.publish_tries < 1:
            raise PlanError(f"publish_tries must be 1 or more, not {self.publish_tries}")
        if self.standbys < 0:
            raise PlanError(f"standbys must be 0 or more, not {self.standbys}")
        try:
            store_kind(self.store)
        except StateError as error:
            raise PlanError(str(error)) from error

    def settings(self, *, on_cluster: bool, once: bool) -> Settings:
        """Return them as the engine knows them."""
        directory = os.fspath(self.cache) if self.cache is not None else "" if on_cluster else _default_cache()
        return Settings(
            directory,
            self.keep_epochs,
            snapshot_budget=self.snapshot_budget,
            store_bytes_per_second=self.store_bytes_per_second,
            rows_per_arrow_batch=self.rows_per_arrow_batch,
            in_place=self.restore_in_place,
            store=self.store,
            apart=on_cluster,
            defers=on_cluster and not once,
            prefetch_budget=self.prefetch_budget,
            prefetch_time=micros(self.prefetch_time),
            standbys=self.standbys,
            cut_deadline=micros(self.cut_deadline) / 1e6,
            publish_tries=self.publish_tries,
            accept_lost_output=self.on_lost_output == "accept",
        )


def start(
    flow: Flow,
    checkpoint: str | PathLike[str],
    *,
    trigger: Trigger,
    on_drift: str,
    savepoint: str | PathLike[str] | None,
    groups: int | None,
    options: Options,
) -> Job:
    """Start a flow; the arguments are those of `Flow.start`."""
    if on_drift not in ("fail", "keep", "apply"):
        raise PlanError(f"on_drift is 'fail', 'keep' or 'apply', not {on_drift!r}")
    require_java()
    if not flow.sources:
        raise PlanError(f"flow {flow.name!r} has no source; add one with flow.source(id, streaming_dataframe)")
    spark = flow.session
    _use_this_python(spark)
    resolve(spark, flow.plan())
    if groups is not None and not 1 <= groups <= MAX_GROUPS:
        raise PlanError(f"groups must lie between 1 and {MAX_GROUPS}, not {groups}")
    storage = Storage.at(checkpoint)
    lease = Lease(storage)
    try:
        journal = Journal(storage, None if storage.is_local else Exclusive(spark, storage).create)
        check_where_it_runs(spark, storage, options.store)
        identity = _identity(spark, journal, flow, savepoint, groups, options.store)
        resolved, drifted = _plan_to_run(spark, journal, identity.job, flow, on_drift)
        engine = _engine(spark, journal, identity, resolved, flow.name, trigger, options, lease)
        job = Job(flow, engine, lease, trigger)
        if options.on_join == "rebalance":
            engine.assignment.joined = lambda: job.modify(rebalance())
        job._begin(drifted)
        return job
    except BaseException:
        lease.release()
        raise


def _identity(
    spark: SparkSession,
    journal: Journal,
    flow: Flow,
    savepoint: str | PathLike[str] | None,
    groups: int | None,
    store: str,
) -> Identity:
    """Read what the checkpoint is, or make it: new, or from a savepoint."""
    identity, root = journal.identity(), journal.storage.root
    if savepoint is not None:
        if identity is not None:
            raise CheckpointError(
                f"{root} holds a job already; start from the savepoint {savepoint} with a new checkpoint"
            )
        identity = restore_savepoint(spark, Storage.at(savepoint), journal.storage, flow, groups, store)
    if journal.is_half_restored():
        raise CheckpointError(
            f"a start from a savepoint ended before all of it was in {root}; start from it again, with this "
            "checkpoint or another one"
        )
    if identity is None:
        identity = journal.create(uuid.uuid4().hex, groups or DEFAULT_GROUPS, store_kind(store).format)
    if groups not in (None, identity.groups):
        raise CheckpointError(
            f"the job of {root} has {identity.groups} groups, fixed for its life; write a savepoint and start from it "
            f"with groups={groups}"
        )
    check_kept(identity, root, store)
    return identity


def _engine(
    spark: SparkSession,
    journal: Journal,
    identity: Identity,
    resolved: Resolved,
    name: str,
    trigger: Trigger,
    options: Options,
    lease: Lease,
) -> Engine:
    """Make the engine, and take up what the checkpoint has."""
    on_cluster = not (spark.sparkContext.master or "").startswith("local")
    settings = options.settings(on_cluster=on_cluster, once=trigger.once)
    if not on_cluster:
        discard_other_boots(settings.cache, identity.job)
    context = JobContext(
        spark=spark,
        journal=journal,
        job=identity.job,
        query_name=f"{name}-{identity.job[:8]}",
        groups=identity.groups,
        settings=settings,
        clock=EpochClock() if options.clock is None else EpochClock(options.clock, None),
        listener=options.listener or ignore,
        guard=lease.check,
    )
    engine = Engine(context, resolved, spark.sparkContext.defaultParallelism)
    engine.recover()
    engine.settle()
    journal.write_plan(engine.plans.running.plan)
    return engine


def _use_this_python(spark: SparkSession) -> None:
    """On one host let tasks run in the Python of the driver: Spark would take the first `python3` on the PATH."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _plan_to_run(
    spark: SparkSession, journal: Journal, job: str, flow: Flow, on_drift: str
) -> tuple[Resolved, Plan | None]:
    """Compare the script's flow with the plan that the checkpoint ran last.

    Gives the plan to run, and the plan to become at once, as a modification, where the flow has changed and that is
    wanted. Where the old plan cannot run any more, there is nothing to go back to: the new one is run as it is.
    """
    new = flow.plan()
    old = journal.running_plan()
    if old is None:
        return _opened(spark, new, job), None
    new = msgspec.structs.replace(with_slots_of(old, inheriting(old, new)), tuning=old.tuning)
    drift = difference(old, new)
    if not drift:
        new = with_all_slots_of(old, new) if on_drift == "keep" else new
        version = old.version if has_same_slots(old, new) else journal.next_version()
        return _opened(spark, msgspec.structs.replace(new, version=version), job), None
    kept = with_sinks_of(old, new)
    if on_drift == "keep":
        return _opened(spark, kept, job), None
    if on_drift == "fail":
        older = "" if all(map(code.is_comparable, p.codes(old))) else _OLDER
        raise PlanError(
            f"flow {flow.name!r} differs from plan version {old.version} of the checkpoint {journal.storage.root}: "
            f"{drift}.{older} Start with on_drift='apply' to go on with this flow, or with on_drift='keep' for the old "
            "plan"
        )
    check_state_fits(old, new)
    check_partitioning(old, new)
    if _is_fed(old, new):
        with contextlib.suppress(MidstreamError):  # code of another Python, a sink whose password is gone
            return _opened(spark, kept, job), new
    return _opened(spark, msgspec.structs.replace(new, version=journal.next_version()), job), None


def _opened(spark: SparkSession, plan: Plan, job: str) -> Resolved:
    """Resolve a plan, and open its sinks."""
    resolved = resolve(spark, plan)
    for sink in plan.of(p.Sink):
        code.load(sink.code).open(spark, sink.id, job)
    return resolved


def _is_fed(old: Plan, script: Plan) -> bool:
    """Whether the sources of an older plan can be made: by the script, or by code that was kept."""
    given = {source.id: source.schema for source in script.of(p.Source)}
    return all(
        given.get(source.id, source.schema if source.code else "") == source.schema for source in old.of(p.Source)
    )


def _default_cache() -> str:
    """Return a directory that only this user can write to: state is read from there."""
    directory = os.path.join(tempfile.gettempdir(), f"midstream-{getpass.getuser()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, mode=0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PlanError(
            f"{directory}, where state is cached by default, belongs to another user or can be written to by others: "
            "they could exchange the state. Remove it, or give the job a directory of its own: start(cache=...)"
        )
    return directory
