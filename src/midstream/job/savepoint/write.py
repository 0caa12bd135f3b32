"""Savepoints: the whole state of a job at an epoch, as Parquet, with plan and offsets.

The portable form: across format versions, machines and group counts. Layout of a savepoint:

    manifest.json                     what it is of, and all its files with checksums; written last
    state/<operator>/<table>/*.parquet
    spark/                            offsets of the sources, as Spark keeps them

Written by a Spark job of its own over snapshots and change logs, while the job goes on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint import layout
from midstream.checkpoint.checksum import checksum, checksum_of
from midstream.checkpoint.housekeeping import Housekeeping
from midstream.checkpoint.offsets import Feed
from midstream.checkpoint.records import Commit, OperatorState
from midstream.checkpoint.seals import with_seal
from midstream.checkpoint.storage import Storage
from midstream.epoch.context import JobContext
from midstream.epoch.gate import Gate
from midstream.epoch.history import History
from midstream.epoch.plans import Plans
from midstream.errors import CheckpointError
from midstream.job.savepoint.files import SavedFile
from midstream.job.savepoint.manifest import MANIFEST, SAVED, Manifest
from midstream.operators.kinds import keyed_kind_of
from midstream.operators.resolved import Resolved
from midstream.operators.tables import TableForm
from midstream.placement.assignment import Assignment
from midstream.plan import plan as p
from midstream.state.groups import groups_of
from midstream.state.history import Head


@dataclass(frozen=True, slots=True)
class Moment:
    """A job as of one committed epoch."""

    commit: Commit
    resolved: Resolved
    feeds: tuple[Feed, ...]


@contextlib.contextmanager
def pinned(
    gate: Gate, plans: Plans, history: History, housekeeping: Housekeeping, feeds: Callable[[], tuple[Feed, ...]]
) -> Iterator[Moment]:
    """Take the newest committed epoch, and keep what it names from being deleted meanwhile."""
    with gate.between_epochs():
        commit = history.last
        if commit is None:
            raise CheckpointError("no epoch is committed yet, there is nothing to save; try again in a moment")
        if waiting := [id for id, state in commit.operators.items() if state.backlog]:
            raise CheckpointError(
                f"rows of {', '.join(map(repr, waiting))} wait for state that is on its way to another executor; try "
                "again when it has come, after some epochs"
            )
        moment = Moment(commit, plans.running, feeds())
        housekeeping.pin()
    try:
        yield moment
    finally:
        housekeeping.unpin()


def refuse_used(target: Storage) -> None:
    """Refuse a directory that has something in it."""
    if target.list(""):
        raise CheckpointError(f"{target.root} is not empty; give the savepoint a new directory")


def write_savepoint(context: JobContext, assignment: Assignment, moment: Moment, target: Storage) -> str:
    """Write the state of a moment that is pinned; the job goes on meanwhile."""
    commit, resolved = moment.commit, moment.resolved
    epoch = commit.epoch - 1 if commit.final else commit.epoch  # the last epoch is none of Spark's
    files, tables = copy_offsets(context.journal.storage, target, epoch), {}
    for operator in resolved.plan.of(p.KeyedOperator):
        form = keyed_kind_of(operator).form(operator, resolved)
        tables[operator.id] = tuple(form.portable().schemas())
        files |= _dump(context, form, commit, max(assignment.slots(resolved.plan, operator.id), 1), target)
    manifest = Manifest(
        format=SAVED,
        job=context.job,
        epoch=epoch,
        clock=commit.clock,
        groups=context.groups,
        offsets=commit.offsets,
        feeds=moment.feeds,
        event_times=commit.event_times,
        watermarks={id: state.watermark for id, state in commit.operators.items()},
        latest={id: state.latest for id, state in commit.operators.items()},
        regimes={id: state.regimes for id, state in commit.operators.items()},
        tables=tables,
        files=files,
        layouts={id: keyed.layout for id, keyed in resolved.keyed.items()},
        plan=msgspec.Raw(msgspec.json.encode(resolved.plan)),
    )
    target.write(MANIFEST, with_seal(msgspec.json.format(msgspec.json.encode(manifest), indent=1)))
    return target.root


def _dump(context: JobContext, form: TableForm, commit: Commit, tasks: int, target: Storage) -> dict[str, SavedFile]:
    """Write the tables of an operator; return its files."""
    state = commit.operators.get(form.operator, OperatorState())
    head = Head(
        job=context.job,
        operator=form.operator,
        checkpoint=context.journal.storage.root,
        cache="",
        epoch=commit.epoch,
        changed=state.changed or (None,) * context.groups,
        born=state.born,
        runs=state.runs or (),
        in_place=True,
        store=context.settings.store,
    )
    groups = context.spark.range(0, context.groups, 1, tasks)
    written = groups.mapInArrow(DumpTask(form, head, target.root), DumpTask.SCHEMA).collect()
    named = {row.file: SavedFile(row.size, row.checksum, row.rows) for row in written}
    for table in form.portable().schemas():
        directory = f"state/{form.operator}/{table}"
        for name in target.list(directory):
            if f"{directory}/{name}" not in named:
                target.delete(f"{directory}/{name}")  # of an attempt that was not counted
    return named


@dataclass(frozen=True)
class DumpTask:
    """Writes the tables of some groups as Parquet, one row group per key-group."""

    form: TableForm
    head: Head
    target: str

    SCHEMA = "file string, size long, checksum long, rows long"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over the numbers of groups."""
        portable, storage = self.form.portable(), Storage(self.target)
        scratch = tempfile.mkdtemp(prefix="midstream-savepoint-")
        name = f"part-{os.urandom(6).hex()}.parquet"
        local = {table: os.path.join(scratch, f"{table}.parquet") for table in portable.schemas()}
        writers = {table: pq.ParquetWriter(local[table], schema) for table, schema in portable.schemas().items()}
        try:
            cache = groups_of(replace(self.head, cache=scratch))
            for batch in batches:
                for group in batch.column(0).to_pylist():
                    store = cache.bring(group)
                    with store.reader() as reader:
                        for table, rows in portable.dump(reader, group).items():
                            if rows.num_rows:
                                writers[table].write_table(rows)
                    store.close()
            done = []
            for table, writer in writers.items():
                writer.close()
                (found, size), rows = checksum_of(local[table]), pq.read_metadata(local[table]).num_rows
                storage.upload(local[table], f"state/{self.form.operator}/{table}/{name}")
                done.append((f"state/{self.form.operator}/{table}/{name}", size, found, rows))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        columns = [pa.array(list(column)) for column in zip(*done, strict=True)]
        yield pa.record_batch(columns, names=["file", "size", "checksum", "rows"])


def copy_offsets(source: Storage, target: Storage, epoch: int) -> dict[str, SavedFile]:
    """Copy what Spark needs to go on after an epoch: its offsets, and what file sources have seen; return the files.

    A source counts what it has seen on its own: where a batch was listed and never run, its numbers are ahead of the
    epochs. What it has seen after the epoch it reads again.
    """
    base, copied = layout.SPARK, dict[str, SavedFile]()

    def put(name: str, content: bytes) -> None:
        target.write_new(f"{base}/{name}", content)
        copied[f"{base}/{name}"] = SavedFile(len(content), checksum(content))

    names = ["metadata", f"offsets/{epoch}"]
    if epoch:
        names.append(f"offsets/{epoch - 1}")  # Spark reads it too when it starts again
    for name in names:
        put(name, source.read(f"{base}/{name}"))
    commits = [name for name in source.list(f"{base}/commits") if name.isdigit() and int(name) <= epoch]
    newest = source.read(f"{base}/commits/{max(commits, key=int)}") if commits else b'v1\n{"nextBatchWatermarkMs":0}'
    put(f"commits/{epoch}", newest)
    for number in source.list(f"{base}/sources"):
        for name in source.list(f"{base}/sources/{number}"):
            if name.split(".")[0].isdigit():
                put(f"sources/{number}/{name}", source.read(f"{base}/sources/{number}/{name}"))
    return copied
