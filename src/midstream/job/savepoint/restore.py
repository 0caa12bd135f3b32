"""Starting from a savepoint: a new checkpoint is made of its tables and offsets, once all of it is verified."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from midstream.checkpoint import layout
from midstream.checkpoint.checksum import checksum_of
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import (
    FORMAT,
    Commit,
    Identity,
    OperatorState,
    SnapshotRef,
)
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError
from midstream.job.savepoint.files import verify
from midstream.job.savepoint.manifest import UNSEALED, Manifest, read_manifest
from midstream.job.savepoint.write import copy_offsets
from midstream.operators.kinds import keyed_kind_of
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved, check_layout, hashed
from midstream.operators.tables import TableForm
from midstream.plan import plan as p
from midstream.plan.compatibility import check_groups, check_state_fits
from midstream.plan.routing import DEFAULT_GROUPS
from midstream.plan.windows import LONG_AGO
from midstream.state.entries import (
    EVENT,
    EXPIRY,
    PROCESSING,
    deadline_of,
)
from midstream.state.stores.contract import Version
from midstream.state.stores.lmdb import LmdbStore, close_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.flow.flow import Flow


def restore_savepoint(
    spark: SparkSession, source: Storage, target: Storage, flow: Flow, groups: int | None
) -> Identity:
    """Make a new checkpoint from a savepoint."""
    manifest = read_manifest(source)
    if manifest.format != UNSEALED:
        verify(spark, source, manifest.files)
    before = manifest.read_plan()
    check_state_fits(before, flow.plan())
    check_groups(before, flow.plan(), manifest.groups, groups or manifest.groups)
    saved = [o.id for o in before.of(p.Source)]
    if not set(saved) <= set(flow.sources):
        raise CheckpointError(
            f"the savepoint {source.root} has offsets of the sources {', '.join(saved)}; the flow has "
            f"{', '.join(flow.sources)}. Start it with the same sources; others may come besides"
        )
    journal = Journal(target)
    journal.begin_restoring()
    identity = Identity(format=FORMAT, job=os.urandom(16).hex(), groups=groups or manifest.groups or DEFAULT_GROUPS)
    commit_id = os.urandom(8).hex()
    version = Version(identity.job, manifest.epoch, commit_id)
    resolved = resolve(spark, flow.plan())
    operators = {}
    for operator in flow.plan().of(p.KeyedOperator):
        if operator.id in manifest.tables:
            check_layout(operator.id, {0: manifest.layouts[operator.id]}, resolved.keyed[operator.id])
            operators[operator.id] = _load(
                spark, resolved, operator, manifest, source, target, version, identity.groups
            )
    copy_offsets(source, target, manifest.epoch)
    journal.write_plan(flow.plan())
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
    journal.create(identity.job, identity.groups)
    target.delete(layout.RESTORING)
    return identity


def _load(
    spark: SparkSession,
    resolved: Resolved,
    operator: p.KeyedOperator,
    manifest: Manifest,
    source: Storage,
    target: Storage,
    version: Version,
    groups: int,
) -> OperatorState:
    form = keyed_kind_of(operator).form(operator, resolved)
    keyed = resolved.keyed[operator.id]
    entries: DataFrame | None = None
    portable = form.portable()
    for table in [table for table in manifest.tables[operator.id] if table in portable.schemas()]:
        directory = f"state/{operator.id}/{table}/"
        named = [source.for_spark(name) for name in manifest.files if name.startswith(directory)]
        rows = spark.read.parquet(*(named or [source.for_spark(directory.rstrip("/"))]))
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
        if keyed_kind_of(operator).looks_at_once:
            deadlines[row.group] = (LONG_AGO, None)  # it is looked into at once, and says when again
        elif row.event is not None or row.clock is not None:
            deadlines[row.group] = (row.event, row.clock)
    return OperatorState(
        born=version.epoch,
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

    form: TableForm
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
        directory = layout.snapshot_directory(layout.home_of(self.operator, self.version[1]), group)
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
