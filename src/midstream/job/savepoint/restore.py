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
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.records import FORMAT, Commit, Identity, OperatorState, RunRef, SnapshotRef
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
from midstream.state.entries import EVENT, EXPIRY, PROCESSING, deadline_of
from midstream.state.runs.keys import key_column
from midstream.state.runs.part import Part
from midstream.state.runs.values import ByteValues
from midstream.state.runs.writer import write_run
from midstream.state.snapshots import Snapshots
from midstream.state.stores.contract import Version
from midstream.state.stores.kinds import RUNS, store_kind
from midstream.state.throttle import Throttle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from midstream.flow.flow import Flow


def restore_savepoint(
    spark: SparkSession, source: Storage, target: Storage, flow: Flow, groups: int | None, store: str
) -> Identity:
    """Make a new checkpoint from a savepoint, with its state in a kind of store."""
    manifest = read_manifest(source)
    if manifest.format != UNSEALED:
        verify(spark, source, manifest.files)
    _refuse_other_flow(manifest, source, flow, groups)
    journal = Journal(target)
    journal.begin_restoring()
    identity = Identity(
        format=FORMAT,
        job=os.urandom(16).hex(),
        groups=groups or manifest.groups or DEFAULT_GROUPS,
        store=store_kind(store).format,
    )
    version = Version(identity.job, manifest.epoch, os.urandom(8).hex())
    resolved = resolve(spark, flow.plan())
    restoring = _Restoring(spark, manifest, source, target, resolved, version, identity.groups, store)
    operators = restoring.operators()
    copy_offsets(source, target, manifest.epoch)
    journal.write_plan(flow.plan())
    journal.write_feeds(manifest.feeds)
    journal.write_commit(
        Commit(
            epoch=manifest.epoch,
            id=version.commit,
            parent="",
            version=1,
            clock=manifest.clock,
            offsets=manifest.offsets,
            operators=operators,
            event_times=manifest.event_times,
        )
    )
    journal.create(identity.job, identity.groups, identity.store)
    target.delete(layout.RESTORING)
    return identity


def _refuse_other_flow(manifest: Manifest, source: Storage, flow: Flow, groups: int | None) -> None:
    """Refuse a flow that cannot go on from a savepoint."""
    before = manifest.read_plan()
    check_state_fits(before, flow.plan())
    check_groups(before, flow.plan(), manifest.groups, groups or manifest.groups)
    saved = [o.id for o in before.of(p.Source)]
    if not set(saved) <= set(flow.sources):
        raise CheckpointError(
            f"the savepoint {source.root} has offsets of the sources {', '.join(saved)}; the flow has "
            f"{', '.join(flow.sources)}. Start it with the same sources; more may be added"
        )


@dataclass(frozen=True, slots=True)
class _Restoring:
    """A savepoint on its way into a new checkpoint."""

    spark: SparkSession
    manifest: Manifest
    source: Storage
    target: Storage
    resolved: Resolved  # the flow that goes on
    version: Version  # of all its state
    groups: int
    store: str  # the kind of store that groups are kept in

    def operators(self) -> dict[str, OperatorState]:
        """Write the state of all operators that the savepoint has; return what the record says of them."""
        found = {}
        for operator in self.resolved.plan.of(p.KeyedOperator):
            if operator.id in self.manifest.tables:
                check_layout(operator.id, {0: self.manifest.layouts[operator.id]}, self.resolved.keyed[operator.id])
                found[operator.id] = self._state(operator, self._load(operator))
        return found

    def _load(self, operator: p.KeyedOperator) -> list[Row]:
        """Write the snapshots of an operator; return a row for each group that has some state."""
        entries, tasks = self._entries(operator), min(self.groups, max(self.spark.sparkContext.defaultParallelism, 1))
        slot = (F.col("_group") % F.lit(tasks)).alias("_slot")
        by_slot = entries.select("*", slot).repartitionById(tasks, F.col("_slot"))
        version = (self.version.job, self.version.epoch, self.version.commit)
        loading = LoadTask(operator.id, self.target.root, version, self.store)
        ordered = by_slot.sortWithinPartitions("_group", "entry").select("_group", "entry", "value")
        return ordered.mapInArrow(loading, LoadTask.SCHEMA).collect()

    def _entries(self, operator: p.KeyedOperator) -> DataFrame:
        """Read the tables of an operator as entries of its groups."""
        form, keyed = keyed_kind_of(operator).form(operator, self.resolved), self.resolved.keyed[operator.id]
        entries: DataFrame | None = None
        portable = form.portable()
        for table in [table for table in self.manifest.tables[operator.id] if table in portable.schemas()]:
            directory = f"state/{operator.id}/{table}/"
            named = [self.source.for_spark(name) for name in self.manifest.files if name.startswith(directory)]
            rows = self.spark.read.parquet(*(named or [self.source.for_spark(directory.rstrip("/"))]))
            group = portable.group_of(table, hashed(operator, keyed), self.groups)
            placed = rows.withColumn("_group", F.expr(group))
            found = placed.mapInArrow(EntriesTask(form, table), "_group int, entry binary, value binary")
            entries = found if entries is None else entries.union(found)
        assert entries is not None
        return entries

    def _state(self, operator: p.KeyedOperator, loaded: list[Row]) -> OperatorState:
        """Return what the record says of an operator."""
        keyed, manifest, version = self.resolved.keyed[operator.id], self.manifest, self.version
        changed: list[tuple[int, str] | None] = [None] * self.groups
        snapshots: list[SnapshotRef | None] = [None] * self.groups
        deadlines: dict[int, tuple[int | None, int | None]] = {}
        runs: list[RunRef] = []
        for row in loaded:
            changed[row.group] = (version.epoch, version.commit)
            if self.store == RUNS:
                runs.append(RunRef(row.path, ((row.group, row.size),)))
            else:
                snapshots[row.group] = SnapshotRef(version.epoch, version.commit, row.path, row.size, row.checksum)
            if keyed_kind_of(operator).looks_at_once:
                deadlines[row.group] = (LONG_AGO, None)  # it is looked into at once, and says when again
            elif row.event is not None or row.clock is not None:
                deadlines[row.group] = (row.event, row.clock)
        return OperatorState(
            born=version.epoch,
            changed=tuple(changed),
            snapshots=tuple(snapshots),
            runs=tuple(runs) if self.store == RUNS else None,
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
    store: str

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
        first: dict[int, int] = {}
        for entry, _ in entries:
            if entry[0] in (EVENT, PROCESSING, EXPIRY):
                first.setdefault(entry[0], deadline_of(entry))
        clock = [first[tag] for tag in (PROCESSING, EXPIRY) if tag in first]
        return group, *self._stored(scratch, group, entries), first.get(EVENT), min(clock, default=None)

    def _stored(self, scratch: str, group: int, entries: list[tuple[bytes, bytes]]) -> tuple[str, int, int]:
        """Write the entries of a group; return path, size (of a run: how many they are) and checksum."""
        kind, version, path = store_kind(self.store), Version(*self.version), os.path.join(scratch, str(group))
        home = layout.home_of(self.operator, version.epoch)
        if self.store == RUNS:
            part = Part(key_column([entry for entry, _ in entries]), ByteValues.of([value for _, value in entries]))
            stem = f"{layout.run_directory(home)}/{version.epoch:012}"
            return write_run(Storage(self.checkpoint), stem, {group: part}, {}), len(entries), 0
        store = kind.open(path)
        store.apply([_Puts(entries)], version)
        snapshots = Snapshots(Storage(self.checkpoint), home, kind.format, Throttle())
        written = snapshots.write(group, store, version, f"{path}.snapshot")
        store.close()
        return written.path, written.size, written.checksum


@dataclass(frozen=True)
class _Puts:
    entries: list[tuple[bytes, bytes]]

    def puts(self) -> list[tuple[bytes, bytes]]:
        return self.entries

    def deletes(self) -> tuple[bytes, ...]:
        return ()
