"""One slot of a sum per key, epoch by epoch, with real change logs, snapshots and caches, and without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.layout import backlog_directory, log_directory
from midstream.checkpoint.records import Commit, LogRef, OperatorState, Report, SnapshotRef
from midstream.checkpoint.storage import Storage
from midstream.epoch.commit import epoch_of
from midstream.operators.aggregates.declare import AggregateSpec, compile_aggregates
from midstream.operators.aggregates.task import AggregateTask
from midstream.operators.task import GROUP, MARKER, SLOT, Epoch, Relocation
from midstream.plan.routing import Routing
from midstream.state.backlog import left_over
from midstream.state.cache import Cache
from midstream.state.changelog import read_report
from midstream.state.history import Head, logs_of
from tests.support.histories import HOME

GROUPS = 6
_SPEC = AggregateSpec(name="total", function="sum", column="v")
_COMPILED = compile_aggregates("sums", (_SPEC,), {"k": "bigint", "v": "bigint"}, None)
_OUTPUT = pa.schema([("k", pa.int64()), ("total", pa.int64())])
_ALL = Relocation(lazy=True, defers=True)


@dataclass
class Summing:
    """A slot that owns all groups; key `k` is of group `k % GROUPS`, and every row of a key adds 1 to its sum."""

    directory: Path
    folded: bool = False  # as if the JVM had folded the rows of each key
    commits: list[Commit] = field(default_factory=list)
    sums: dict[int, int] = field(default_factory=dict)  # key -> the last that was given out

    @property
    def storage(self) -> Storage:
        return Storage(str(self.directory / "checkpoint"))

    def head(self, host: str, **options: Any) -> Head:
        last = self.commits[-1] if self.commits else None
        state = last.operators["sums"] if last is not None else OperatorState()
        changed = state.changed or (None,) * GROUPS
        recent = tuple(logs_of(commit, "sums") for commit in self.commits[-4:])
        root, cache, epoch = self.storage.root, str(self.directory / host), len(self.commits) - 1
        return Head("job", "sums", root, cache, epoch, changed, recent=recent, backlog=state.backlog, **options)

    def epoch(
        self,
        rows: Mapping[int, int],
        host: str = "host",
        *,
        relocation: Relocation = _ALL,
        bytes_per_second: int = 0,
        mine: frozenset[int] = frozenset(range(GROUPS)),
        **told: Any,
    ) -> Report:
        """Run an epoch of so many rows per key, and commit it; what is not of `mine` is of another slot."""
        number, id = len(self.commits), os.urandom(4).hex()
        epoch = replace(Epoch(number, number, "", None, relocation=relocation), **{"prefetch_seconds": 60.0, **told})
        routing = Routing(tuple(0 if group in mine else 1 for group in range(GROUPS)), 2)
        task = AggregateTask(
            operator="sums", head=self.head(host, bytes_per_second=bytes_per_second), epoch=epoch,
            directory=log_directory(HOME, number, id), aside=backlog_directory(HOME, number, id),
            schema=bytes(_OUTPUT.serialize()), keys=("k",), routing=routing, compiled=_COMPILED, combined=self.folded,
        )  # fmt: skip
        for batch in task(iter([self._received(rows, routing.tokens[0])])):
            self.sums.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        (name,) = self.storage.list(task.directory)
        report = read_report(self.storage, f"{task.directory}/{name}")
        assert not report.failure, report.failure
        self._commit(report, f"{task.directory}/{name}", id)
        return report

    def is_whole(self, host: str) -> list[int]:
        """The groups of which a host has all."""
        cache = Cache(self.head(host))
        return [group for group in range(GROUPS) if cache.copies.is_whole(group)]

    def _received(self, rows: Mapping[int, int], token: int) -> pa.RecordBatch:
        keys = list(rows) if self.folded else [key for key, count in rows.items() for _ in range(count)]
        counts = [rows[key] for key in keys] if self.folded else [1] * len(keys)
        columns: dict[str, list[int]] = {
            SLOT: [token] * (len(keys) + 1),
            GROUP: [*(key % GROUPS for key in keys), MARKER],
            "k": [*keys, 0],
            **({"_rows": [*counts, 0]} if self.folded else {}),
            **{accumulator.name: [*counts, 0] for accumulator in _COMPILED.accumulators},
        }
        types = {name: pa.int32() if name in (SLOT, GROUP) else pa.int64() for name in columns}
        return pa.record_batch({name: pa.array(found, types[name]) for name, found in columns.items()})

    def _commit(self, report: Report, path: str, id: str) -> None:
        known = self.commits[-1].operators["sums"] if self.commits else OperatorState()
        changed, taken = list(known.changed or (None,) * GROUPS), list(known.snapshots or (None,) * GROUPS)
        links = tuple((group, changes, epoch_of(changed[group])) for group, changes in report.groups)
        for group, _ in report.groups:
            changed[group] = (len(self.commits), id)
        for group, *snapshot in report.snapshots:
            taken[group] = SnapshotRef(*snapshot)
        backlog = left_over(known.backlog, set(report.caught_up))
        state = OperatorState(
            logs=(LogRef(0, path, 0, links),) if report.groups else (),
            changed=tuple(changed),
            snapshots=tuple(taken),
            backlog=(*backlog, report.deferred) if report.deferred is not None else backlog,
        )
        parent, number = self.commits[-1].id if self.commits else "", len(self.commits)
        commit = Commit(epoch=number, id=id, parent=parent, version=1, clock=0, offsets=(), operators={"sums": state})
        Journal(self.storage).write_commit(commit)
        self.commits.append(commit)
