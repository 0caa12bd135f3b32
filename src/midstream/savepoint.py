"""Savepoints: the whole state of a job at an epoch, as Parquet, with plan and offsets.

The portable form: across format versions, machines and group counts. Layout of a savepoint:

    manifest.json                     format, epoch, offsets, plan, watermarks; written last
    state/<operator>/<table>/*.parquet
    spark/                            offsets of the sources, as Spark keeps them

Written by a Spark job of its own over snapshots and change logs, while the job goes on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from midstream import plan as p
from midstream import storage as layout
from midstream.errors import CheckpointError
from midstream.feeds import Feed
from midstream.journal import FORMAT, Commit, Identity, Journal, OperatorState, SnapshotRef
from midstream.plan import Plan
from midstream.regimes import Regime
from midstream.resolve import Resolved, arrow_schema, check_layout, hashed, resolve
from midstream.routing import DEFAULT_GROUPS
from midstream.state.cache import Cache, Head
from midstream.state.checksum import checksum_of
from midstream.state.forms import EVENT, EXPIRY, PROCESSING, deadline_of
from midstream.state.lmdb_store import LmdbStore, close_environment
from midstream.state.portable import PortableAggregate, PortableForm, PortableSessions, PortableWindows
from midstream.state.store import Version
from midstream.storage import Storage
from midstream.succession import check_groups, check_state_fits
from midstream.windows import LONG_AGO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.engine import Engine
    from midstream.flow import Flow

MANIFEST = "manifest.json"
SAVED = 1  # the format of savepoints


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a savepoint is of."""

    format: int
    job: str
    epoch: int
    clock: int
    groups: int
    offsets: tuple[str, ...]
    feeds: tuple[Feed, ...]  # whose offsets these are
    event_times: dict[str, int]
    watermarks: dict[str, int | None] = {}  # operator -> up to where its windows are closed
    latest: dict[str, int | None] = {}  # operator -> up to where its windows have had rows
    regimes: dict[str, tuple[Regime, ...]] = {}  # operator -> which of its windows are of which shape
    tables: dict[str, tuple[str, ...]]  # operator -> tables
    layouts: dict[str, str]  # operator -> the form of its state
    plan: Plan


def _form(resolved: Resolved, operator: p.Process | p.Aggregate) -> PortableForm:
    keyed = resolved.keyed[operator.id]
    keys = bytes(arrow_schema(keyed.keys).serialize())
    if isinstance(operator, p.Aggregate):
        assert keyed.compiled is not None
        results = pa.schema(list(keyed.output)[-len(keyed.compiled.outputs) :])
        kind = PortableAggregate
        if isinstance(operator, p.Window):
            kind = PortableSessions if operator.is_session else PortableWindows
        return PortableForm(operator.id, keys, (kind, keyed.compiled, bytes(results.serialize())), None)
    return PortableForm(operator.id, keys, None, keyed.stages, keyed.shared)


# --- writing --------------------------------------------------------------------------------------------------------


def write_savepoint(engine: Engine, target: Storage) -> str:
    """Write the state as of the newest committed epoch; the job goes on meanwhile."""
    if target.list(""):
        raise CheckpointError(f"{target.root} is not empty; give the savepoint a new directory")
    housekeeping = engine.housekeeping
    with engine.lock:  # between two epochs
        commit, resolved = engine.last, engine.resolved
        if commit is None:
            raise CheckpointError("no epoch is committed yet, there is nothing to save; try again in a moment")
        if waiting := [id for id, state in commit.operators.items() if state.backlog]:
            raise CheckpointError(
                f"rows of {', '.join(map(repr, waiting))} wait for state that is on its way to another executor; try "
                "again when it has come, after some epochs"
            )
        housekeeping.pin()
    try:
        epoch = commit.epoch - 1 if commit.final else commit.epoch  # the last epoch is none of Spark's
        _copy_offsets(engine.journal.storage, target, epoch)
        tables = {}
        for operator in resolved.plan.of(p.Process, p.Aggregate):
            form = _form(resolved, operator)
            state = commit.operators.get(operator.id, OperatorState())
            tables[operator.id] = tuple(form.portable().schemas())
            _dump(engine, form, commit, state, target)
        manifest = Manifest(
            format=SAVED,
            job=engine.job,
            epoch=epoch,
            clock=commit.clock,
            groups=engine.groups,
            offsets=commit.offsets,
            feeds=engine.feeds,
            event_times=commit.event_times,
            watermarks={id: state.watermark for id, state in commit.operators.items()},
            latest={id: state.latest for id, state in commit.operators.items()},
            regimes={id: state.regimes for id, state in commit.operators.items()},
            tables=tables,
            layouts={id: keyed.layout for id, keyed in resolved.keyed.items()},
            plan=resolved.plan,
        )
        target.write(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    finally:
        housekeeping.unpin()
    return target.root


def _dump(engine: Engine, form: PortableForm, commit: Commit, state: OperatorState, target: Storage) -> None:
    head = Head(
        job=engine.job,
        operator=form.operator,
        checkpoint=engine.journal.storage.root,
        cache="",
        epoch=commit.epoch,
        changed=state.changed or (None,) * engine.groups,
        in_place=True,
    )
    tasks = max(engine.slots(form.operator), 1)
    groups = engine.spark.range(0, engine.groups, 1, tasks)
    written = groups.mapInArrow(DumpTask(form, head, target.root), "file string").collect()
    named = {row.file for row in written}
    for table in form.portable().schemas():
        directory = f"state/{form.operator}/{table}"
        for name in target.list(directory):
            if f"{directory}/{name}" not in named:
                target.delete(f"{directory}/{name}")  # of an attempt that was not counted


@dataclass(frozen=True)
class DumpTask:
    """Writes the tables of some groups as Parquet, one row group per key-group."""

    form: PortableForm
    head: Head
    target: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over the numbers of groups."""
        portable, storage = self.form.portable(), Storage(self.target)
        scratch = tempfile.mkdtemp(prefix="midstream-savepoint-")
        name = f"part-{os.urandom(6).hex()}.parquet"
        local = {table: os.path.join(scratch, f"{table}.parquet") for table in portable.schemas()}
        writers = {table: pq.ParquetWriter(local[table], schema) for table, schema in portable.schemas().items()}
        try:
            cache = Cache(replace(self.head, cache=scratch))
            for batch in batches:
                for group in batch.column(0).to_pylist():
                    store = cache.bring(group)
                    with store.reader() as reader:
                        for table, rows in portable.dump(reader, group).items():
                            if rows.num_rows:
                                writers[table].write_table(rows)
                    store.close()
            for table, writer in writers.items():
                writer.close()
                storage.upload(local[table], f"state/{self.form.operator}/{table}/{name}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        files = [f"state/{self.form.operator}/{table}/{name}" for table in writers]
        yield pa.record_batch([pa.array(files)], names=["file"])


def _copy_offsets(source: Storage, target: Storage, epoch: int) -> None:
    """Copy what Spark needs to go on after an epoch: its offsets, and what file sources have seen."""
    base = layout.SPARK
    names = ["metadata", f"offsets/{epoch}"]
    if epoch:
        names.append(f"offsets/{epoch - 1}")  # Spark reads it too when it starts again
    for name in names:
        target.write_new(f"{base}/{name}", source.read(f"{base}/{name}"))
    commits = [name for name in source.list(f"{base}/commits") if name.isdigit() and int(name) <= epoch]
    newest = source.read(f"{base}/commits/{max(commits, key=int)}") if commits else b'v1\n{"nextBatchWatermarkMs":0}'
    target.write_new(f"{base}/commits/{epoch}", newest)
    for number in source.list(f"{base}/sources"):
        for name in source.list(f"{base}/sources/{number}"):
            if name.split(".")[0].isdigit() and int(name.split(".")[0]) <= epoch:
                target.write_new(f"{base}/sources/{number}/{name}", source.read(f"{base}/sources/{number}/{name}"))


# --- starting from one ----------------------------------------------------------------------------------------------


def restore_savepoint(
    spark: SparkSession, source: Storage, target: Storage, flow: Flow, groups: int | None
) -> Identity:
    """Make a new checkpoint from a savepoint."""
    manifest = read_manifest(source)
    check_state_fits(manifest.plan, flow.plan())
    check_groups(manifest.plan, flow.plan(), manifest.groups, groups or manifest.groups)
    saved = [o.id for o in manifest.plan.of(p.Source)]
    if not set(saved) <= set(flow.sources):
        raise CheckpointError(
            f"the savepoint {source.root} has offsets of the sources {', '.join(saved)}; the flow has "
            f"{', '.join(flow.sources)}. Start it with the same sources; others may come besides"
        )
    for leftover in (layout.COMMITS, layout.SPARK, layout.PLANS, layout.JOURNAL, "state", "spool"):
        target.delete(leftover)  # of an earlier try: a checkpoint counts once its identity is written
    identity = Identity(format=FORMAT, job=os.urandom(16).hex(), groups=groups or manifest.groups or DEFAULT_GROUPS)
    commit_id = os.urandom(8).hex()
    version = Version(identity.job, manifest.epoch, commit_id)
    resolved = resolve(spark, flow.plan())
    operators = {}
    for operator in flow.plan().of(p.Process, p.Aggregate):
        if operator.id in manifest.tables:
            check_layout(operator.id, {0: manifest.layouts[operator.id]}, resolved.keyed[operator.id])
            operators[operator.id] = _load(
                spark, resolved, operator, manifest, source, target, version, identity.groups
            )
    _copy_offsets(source, target, manifest.epoch)
    journal = Journal(target)
    journal.write_feeds(manifest.feeds)
    journal.write_commit(
        Commit(
            epoch=manifest.epoch,
            id=commit_id,
            parent="",
            version=1,
            clock=manifest.clock,
            offsets=manifest.offsets,
            operators=operators,
            event_times=manifest.event_times,
        )
    )
    return journal.create(identity.job, identity.groups)


def read_manifest(source: Storage) -> Manifest:
    """Read what a savepoint is of; refuse one that is not whole."""
    where = source.path(MANIFEST)
    try:
        text = source.read(MANIFEST)
        known = msgspec.json.decode(text, type=dict[str, Any]).get("format")
        if known != SAVED:
            raise CheckpointError(f"the savepoint {source.root} has format {known}; this Midstream reads {SAVED}")
        return msgspec.json.decode(text, type=Manifest)
    except FileNotFoundError as error:
        raise CheckpointError(f"{source.root} is not a savepoint, or was not finished: {where} is missing") from error
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error


def _load(
    spark: SparkSession,
    resolved: Resolved,
    operator: p.Process | p.Aggregate,
    manifest: Manifest,
    source: Storage,
    target: Storage,
    version: Version,
    groups: int,
) -> OperatorState:
    form = _form(resolved, operator)
    keyed = resolved.keyed[operator.id]
    entries: DataFrame | None = None
    portable = form.portable()
    for table in [table for table in manifest.tables[operator.id] if table in portable.schemas()]:
        rows = spark.read.parquet(source.for_spark("state", operator.id, table))
        group = portable.group_of(table, hashed(operator, keyed), groups)
        placed = rows.withColumn("_group", F.expr(group))
        found = placed.mapInArrow(EntriesTask(form, table), "_group int, entry binary, value binary")
        entries = found if entries is None else entries.union(found)
    assert entries is not None
    tasks = min(groups, max(spark.sparkContext.defaultParallelism, 1))
    slot = (F.col("_group") % F.lit(tasks)).alias("_slot")
    sorted_ = entries.select("*", slot).repartitionById(tasks, F.col("_slot")).sortWithinPartitions("_group", "entry")
    loaded = sorted_.select("_group", "entry", "value").mapInArrow(
        LoadTask(operator.id, target.root, (version.job, version.epoch, version.commit)), LoadTask.SCHEMA
    )
    changed: list[tuple[int, str] | None] = [None] * groups
    snapshots: list[SnapshotRef | None] = [None] * groups
    deadlines: dict[int, tuple[int | None, int | None]] = {}
    for row in loaded.collect():
        changed[row.group] = (version.epoch, version.commit)
        snapshots[row.group] = SnapshotRef(version.epoch, version.commit, row.path, row.size, row.checksum)
        if isinstance(operator, p.Window):
            deadlines[row.group] = (LONG_AGO, None)  # it is looked into at once, and says when again
        elif row.event is not None or row.clock is not None:
            deadlines[row.group] = (row.event, row.clock)
    return OperatorState(
        changed=tuple(changed),
        snapshots=tuple(snapshots),
        deadlines=deadlines,
        layouts={keyed.base: keyed.layout},
        top=keyed.top,
        watermark=manifest.watermarks.get(operator.id),
        latest=manifest.latest.get(operator.id),
        regimes=manifest.regimes.get(operator.id, ()),
    )


@dataclass(frozen=True)
class EntriesTask:
    """Turns rows of a table into entries of stores."""

    form: PortableForm
    table: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over rows of a table; several entries of a row stay in its group."""
        portable = self.form.portable()
        for batch in batches:
            groups, found = batch.column("_group").to_pylist(), []
            for i, group in enumerate(groups):
                found += [(group, *entry) for entry in portable.load(self.table, batch.slice(i, 1))]
            columns = list(zip(*found, strict=True)) if found else [(), (), ()]
            types = (pa.int32(), pa.binary(), pa.binary())
            arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
            yield pa.record_batch(arrays, names=["_group", "entry", "value"])


@dataclass(frozen=True)
class LoadTask:
    """Writes sorted entries as native snapshots, one file per group."""

    operator: str
    checkpoint: str
    version: tuple[str, int, str]

    SCHEMA = "group int, path string, size long, checksum long, event long, clock long"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over entries sorted by group."""
        scratch = tempfile.mkdtemp(prefix="midstream-load-")
        done = []
        try:
            current = -1
            entries: list[tuple[bytes, bytes]] = []
            for batch in batches:
                columns = (column.to_pylist() for column in batch.columns)
                for group, entry, value in zip(*columns, strict=True):
                    if group != current and entries:
                        done.append(self._write(scratch, current, entries))
                        entries = []
                    current = group
                    entries.append((entry, value))
            if entries:
                done.append(self._write(scratch, current, entries))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        names = ["group", "path", "size", "checksum", "event", "clock"]
        types = [pa.int32(), pa.string(), *(pa.int64(),) * 4]
        found: list[tuple[Any, ...]] = list(zip(*done, strict=True)) if done else [()] * 6
        arrays = [pa.array(c, t) for c, t in zip(found, types, strict=True)]
        yield pa.record_batch(arrays, names=names)

    def _write(self, scratch: str, group: int, entries: list[tuple[bytes, bytes]]) -> tuple[Any, ...]:
        raw, local = os.path.join(scratch, f"{group}.raw"), os.path.join(scratch, f"{group}.mdb")
        store = LmdbStore(raw)
        store.apply([_Puts(entries)], Version(*self.version))
        store.snapshot(local)
        close_environment(raw)
        checksum, size = checksum_of(local)
        directory = layout.snapshot_directory(self.operator, group)
        path = f"{directory}/{self.version[1]:012}-{os.urandom(6).hex()}.mdb"
        Storage(self.checkpoint).upload(local, path)
        first: dict[int, int] = {}
        for entry, _ in entries:
            if entry[0] in (EVENT, PROCESSING, EXPIRY):
                first.setdefault(entry[0], deadline_of(entry))
        clock = [first[tag] for tag in (PROCESSING, EXPIRY) if tag in first]
        return group, path, size, checksum, first.get(EVENT), min(clock, default=None)


@dataclass(frozen=True)
class _Puts:
    entries: list[tuple[bytes, bytes]]

    def puts(self) -> list[tuple[bytes, bytes]]:
        return self.entries

    def deletes(self) -> tuple[bytes, ...]:
        return ()
