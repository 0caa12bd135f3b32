"""The cost of movable state while none moves: CPU time and bytes written, against state in memory only.

Both contestants have the same declared aggregate over the same rows on one executor of a real cluster, and their epochs
take turns. One has everything that makes state movable and safe: change logs, commit records, snapshots, groups in a
cache, anchors. The other keeps the entries of its groups in dictionaries of the Python worker, and loses them with it.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.table import Table

import midstream as ms
from midstream.bench import machine
from midstream.bench.contestants import declared, saved_sums
from midstream.bench.oracle import check
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rows import Rows
from midstream.bench.running import run_batches
from midstream.bench.usage import Usage, used
from midstream.bench.workbench import SETTINGS, pause, set_log_level
from midstream.errors import JobError
from midstream.events import After, Event, Step
from midstream.operators.aggregates.kind import accumulators
from midstream.operators.aggregates.task import AggregateTask
from midstream.operators.keyed_run import KeyedRun
from midstream.operators.resolve import resolve
from midstream.operators.resolved import Resolved
from midstream.operators.shuffle import Sent, placement
from midstream.operators.task import GROUP, SLOT, Epoch, Work
from midstream.plan import plan as p
from midstream.plan.routing import DEFAULT_GROUPS, Routing
from midstream.state.cache import Cache
from midstream.state.changelog import LogWriter, changes_of
from midstream.state.history import Head
from midstream.state.stores.contract import Changes, Version
from midstream.state.stores.memory import MemoryStore
from midstream.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOVABLE, MEMORY = "movable", "memory"
_SLOTS = 2
_WARM_UP = 10  # epochs, in which most keys appear
_DRAWN = 2_000  # samples for the interval
_VIEW = "_midstream_bench_rows"


def run(
    keys: int = 1_000_000,
    rows: int = 200_000,
    pairs: int = 40,
    json: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Let epochs of both take turns; print what a million rows cost each of them, return the record.

    Promised: no figure unless both results are right; the order changes from pair to pair; the ratio has an interval,
    by the bootstrap over pairs. Not promised: figures of a machine that does something else meanwhile.

    Args:
        keys: number of keys.
        rows: rows per epoch.
        pairs: epochs of each that count.
        json: file for the record.
        echo: takes the text to print.
    """
    at_least_one(keys=keys, rows=rows, pairs=pairs)
    with cluster(workers=1, memory="2g") as workers:
        spark = workers.session(**{name.replace(".", "__"): text for name, text in SETTINGS.items()})
        set_log_level(spark, "ERROR")
        echo(f"{_WARM_UP} epochs of each to warm up, then {pairs} pairs")
        costs = _costs(spark, Rows(keys), rows, _Turns(_WARM_UP + pairs), workers.directory)
        about = machine.describe(spark)
    kept = {name: found[_WARM_UP:] for name, found in costs.items()}
    record: dict[str, Any] = {
        "checked": True, "keys": keys, "rows": rows, "pairs": pairs,
        "results": [
            {"name": name, **Usage(sum(u.cpu_seconds for u in each), sum(u.written for u in each)).per_million(
                rows * pairs)} for name, each in kept.items()
        ],
        "cpu_ratio": _ratio(kept, lambda usage: usage.cpu_seconds),
        "machine": about,
    }  # fmt: skip
    ratio = record["cpu_ratio"]
    echo(
        rendered(
            _table(record),
            f"Per million rows, {keys:,} keys, {rows:,} rows an epoch, nothing moving. CPU, pair by pair: "
            f"{ratio['median']:.2f} (95 % interval: {ratio['low']:.2f} to {ratio['high']:.2f}).",
            "Both results are right.",
        )
    )
    if json is not None:
        save(record, json)
    return record


def _costs(spark: SparkSession, rows: Rows, per_epoch: int, turns: _Turns, directory: str) -> dict[str, list[Usage]]:
    """Let both contestants take their turns; return what each used in every epoch, once both results are right."""
    with ThreadPoolExecutor(2) as pool:
        both = {
            name: pool.submit(contestant, spark, rows, per_epoch, turns, os.path.join(directory, name))
            for name, contestant in ((MOVABLE, _movable), (MEMORY, _in_memory))
        }
        try:
            costs = turns.take(both)
        finally:
            turns.end()
        for done in both.values():
            done.result()
    return costs


@dataclass(slots=True)
class _Turns:
    """Lets one contestant run at a time, an epoch each."""

    epochs: int
    ended: bool = False
    _go: dict[str, threading.Event] = field(
        default_factory=lambda: {name: threading.Event() for name in (MOVABLE, MEMORY)}
    )
    _waits: dict[str, threading.Event] = field(
        default_factory=lambda: {name: threading.Event() for name in (MOVABLE, MEMORY)}
    )

    def wait(self, name: str) -> None:
        """Wait for the next turn: called by a contestant at the end of each epoch."""
        if not self.ended:
            self._waits[name].set()
            self._go[name].wait()
            self._go[name].clear()

    def take(self, contestants: dict[str, Future[None]]) -> dict[str, list[Usage]]:
        """Let both run all epochs except their first; return what each used."""
        costs: dict[str, list[Usage]] = {name: [] for name in contestants}
        for name, contestant in contestants.items():
            self._until_it_waits(name, contestant)
        for number in range(self.epochs):
            for name in contestants if number % 2 else reversed(contestants):
                before = used()
                self._waits[name].clear()
                self._go[name].set()
                self._until_it_waits(name, contestants[name])
                costs[name].append(used() - before)
        return costs

    def end(self) -> None:
        """Let both go on as they like."""
        self.ended = True
        for go in self._go.values():
            go.set()

    def _until_it_waits(self, name: str, contestant: Future[None]) -> None:
        while not self._waits[name].is_set():
            if contestant.done():
                contestant.result()
                raise JobError(f"{name} has ended by itself")
            pause()


def _movable(spark: SparkSession, rows: Rows, per_epoch: int, turns: _Turns, directory: str) -> None:
    """Midstream as it is."""
    last = 0

    def listen(event: Event) -> None:
        nonlocal last
        if isinstance(event, After) and event.step is Step.PUBLISH:
            last = event.epoch
            turns.wait(MOVABLE)

    with _flow(spark, rows, per_epoch).start(directory, trigger=ms.every(0), listener=listen) as job:
        while not turns.ended and job.is_active:
            pause()
    job.await_termination()
    saved = saved_sums(spark, job.savepoint(f"{directory}-savepoint"))
    check(MOVABLE, saved, rows.sums(spark, 0, (last + 1) * per_epoch))


def _in_memory(spark: SparkSession, rows: Rows, per_epoch: int, turns: _Turns, directory: str) -> None:
    """The same rows in the same tasks, except for what they keep and where."""
    resolved = resolve(spark, _flow(spark, rows, per_epoch).plan())
    written = f"{directory}-last"
    epochs = 0

    def each(batch: DataFrame) -> None:
        nonlocal epochs
        _sums(batch, resolved, epochs).write.format("noop").mode("overwrite").save()
        epochs += 1
        turns.wait(MEMORY)

    run_batches(
        rows.stream(spark, per_epoch),
        each,
        turns.epochs + 1,
        directory,
        afterwards=lambda batch: _sums(batch, resolved, epochs).write.parquet(written),
    )
    expected = rows.sums(spark, 0, (epochs + 1) * per_epoch)
    check(MEMORY, found := spark.read.parquet(written), expected.join(found.select("key"), "key", "left_semi"))


def _flow(spark: SparkSession, rows: Rows, per_epoch: int) -> ms.Flow:
    flow = ms.Flow("idle")
    declared(flow.source("rows", rows.stream(spark, per_epoch)), slots=_SLOTS).sink("out", ms.sinks.noop())
    return flow


def _sums(batch: DataFrame, resolved: Resolved, epoch: int) -> DataFrame:
    """Count and sum per key as Midstream does, in tasks that keep their state in memory."""
    session, operator, keyed = batch.sparkSession, resolved.plan["sums"], resolved.keyed["sums"]
    assert isinstance(operator, p.Aggregate)
    assert keyed.compiled is not None
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(_SLOTS))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
    batch.createOrReplaceTempView(_VIEW)
    routing = Routing.even(DEFAULT_GROUPS, _SLOTS)
    head = Head("", "sums", "", "", -1, (None,) * DEFAULT_GROUPS)
    run = KeyedRun(head, Epoch(epoch, 0, "", None), routing, combine=False, markers=False)
    columns = accumulators(keyed.compiled, combine=False)
    query = placement(Sent(_VIEW, columns, with_keys=True), operator, keyed, run, markers=False)
    task = _InMemoryTask(
        "sums", head, run.epoch, "", "", bytes(keyed.output.serialize()), tuple(keyed.keys.names), routing,
        keyed.compiled, combined=False,
    )  # fmt: skip
    return session.sql(query).mapInArrow(task, resolved.schemas["sums"])


# --- in the Python worker, of which there is one ------------------------------------------------------------------


class _Entries(MemoryStore):
    """The entries of a group, changed in place: there is nothing to go back to."""

    def apply(self, changes: Iterable[Changes], version: Version) -> None:
        for change in changes:
            self._entries.update(change.puts())


_groups: dict[int, _Entries] = {}


class _Groups(Cache):
    def view(self, group: int) -> _Entries:
        return _groups.setdefault(group, _Entries())


class _Writer(LogWriter):
    def apply(self) -> None:
        for group, keys, values in self._batches:
            _groups[group].apply([changes_of(keys, values)], Version("", 0, ""))


@dataclass(frozen=True)
class _InMemoryTask(AggregateTask):
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        rows = pa.Table.from_batches(received).combine_chunks().to_batches(max_chunksize=1 << 31)[0]
        writer = _Writer()
        work = Work(self.routing.tokens.index(rows.column(SLOT)[0].as_py()), _Groups(self.head), writer)
        groups = rows.column(GROUP).to_numpy().astype(np.int32)
        output = self.work(work, rows, groups, frozenset(self.routing.groups_of(work.slot)))
        writer.apply()
        yield from output


# --- the results ----------------------------------------------------------------------------------------------------


def _ratio(costs: dict[str, list[Usage]], of: Callable[[Usage], float]) -> dict[str, float]:
    """How much more the movable one uses, pair by pair: the median, and an interval that holds 95 %."""
    pairs = zip(costs[MOVABLE], costs[MEMORY], strict=True)
    ratios = [of(movable) / of(memory) for movable, memory in pairs]
    chance = random.Random(1)
    drawn = sorted(median(chance.choices(ratios, k=len(ratios))) for _ in range(_DRAWN))
    return {
        "median": round(median(ratios), 3),
        "low": round(drawn[_DRAWN // 40], 3),
        "high": round(drawn[-_DRAWN // 40], 3),
    }


def _table(record: dict[str, Any]) -> Table:
    table = Table(title="what being movable costs", title_justify="left")
    for heading in ("state", "CPU s", "MB written"):
        table.add_column(heading, justify="left" if heading == "state" else "right")
    for each in record["results"]:
        table.add_row(each["name"], f"{each['cpu_s_per_million']:.2f}", f"{each['mb_per_million']:,.0f}")
    return table
