"""The cost of moving state: a job with large state on a real cluster grows from two executors to three.

Rows with skewed keys come at a constant rate and carry the time of their creation; the latency of a row is the time
from then to the end of its epoch. Each strategy starts from a copy of the same checkpoint. Spark's own way is the same
sums as a native query that is stopped, repartitioned offline and started again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import midstream as ms
from midstream.bench import chart, machine, throttled
from midstream.bench import rescale_report as report
from midstream.bench.latency import EpochTimes, epochs_of, stay
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save
from midstream.bench.rescale_report import MeasuredMove
from midstream.bench.rows import PRICE, Rows
from midstream.bench.steady import steady
from midstream.bench.usage import used
from midstream.bench.workbench import SETTINGS, pause, quiet, set_log_level
from midstream.checkpoint import layout
from midstream.events import Event, Progress
from midstream.placement.strategies import NAMES
from midstream.testing import Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPARK = "spark"  # Spark's own way
_BYTES_PER_KEY = 80  # in the store, as measured
_PER_EPOCH = 500_000  # keys that are loaded in an epoch
_AFTERWARDS = 4  # rows of the first key, an epoch each, in which snapshots are taken of what was loaded
_PREFETCH = "50 milliseconds"  # how long an epoch copies beside its work; the default
_COPIES = 5  # of plain files, to compare with
_MOST = 120.0  # seconds that a move may take


@dataclass(frozen=True, slots=True)
class Setting:
    """What all contestants have in common."""

    keys: int
    skew: float
    rate: int
    seconds: int
    every: int  # milliseconds from epoch to epoch
    store: int  # bytes per second, 0: no limit
    directory: str
    cache: str  # where executors keep their copies

    def path(self, *parts: str) -> str:
        """A path in the directory of the benchmark."""
        return os.path.join(self.directory, *parts)

    def load(self, spark: SparkSession) -> DataFrame:
        """One row of every key, for the state to begin with."""
        rows = spark.readStream.schema("key long, price long, number long").option("maxFilesPerTrigger", 1)
        return rows.parquet(self.path("load"))

    def live(self, spark: SparkSession, since: float) -> DataFrame:
        """Rows at a constant rate, without end, numbered from 0."""
        key = Rows(self.keys, self.skew).key
        return steady(spark, self.rate, since).selectExpr(f"{key} as key", f"{PRICE} as price", "value as number")


def run(
    state_mb: int = 500,
    strategies: Sequence[str] = (*NAMES, SPARK),
    skew: float = 1.2,
    rate: int = 2_000,
    seconds: int = 30,
    every_ms: int = 250,
    store_mb_per_s: int = 0,
    rounds: int = 1,
    cache: str | os.PathLike[str] | None = None,
    json: str | os.PathLike[str] | None = None,
    picture: str | os.PathLike[str] | None = None,
    echo: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Measure a move with each strategy; print a table, draw a picture, return the record.

    Promised: no figure unless every row was counted once. Not promised: figures of a machine that does
    something else meanwhile; all executors run on this one.

    Args:
        state_mb: size of the state.
        strategies: names, and "spark" for Spark's own way.
        skew: Zipf exponent of the keys.
        rate: rows per second.
        seconds: length of the steady stretch before the move, and how long it goes on after it.
        every_ms: how often an epoch begins.
        store_mb_per_s: let a task read the durable store no faster than this; Spark's own way too, through a Hadoop
            file system that is as slow. Executors have one core, and so one task at a time.
        rounds: how often each strategy is measured, each time in another order; the median run by its maximum counts.
        cache: directory for the copies that executors keep, on another disk than the rest, as on a cluster; by default
            beside it.
        json: file for the record.
        picture: file for a picture of the latencies.
        echo: takes the text to print.
    """
    at_least_one(state_mb=state_mb, rate=rate, seconds=seconds, every_ms=every_ms, rounds=rounds)
    _refuse_unknown(strategies)
    keys = state_mb * 1_000_000 // _BYTES_PER_KEY
    with cluster(workers=3) as workers, tempfile.TemporaryDirectory(dir=cache or workers.directory) as caches:
        store, directory = store_mb_per_s * 1_000_000, os.path.join(workers.directory, "bench")
        setting = Setting(keys, skew, rate, seconds, every_ms, store, directory, caches)
        os.makedirs(setting.directory)
        spark = _session(workers, store)
        found = _strategies(spark, setting, [name for name in strategies if name != SPARK], rounds, echo)
        if SPARK in strategies:
            echo("spark: loading, steady, then stop, repartition, restart")
            found.append(_sparks(spark, setting))
        about = machine.describe(spark)
    results = [report.result(each, rate, seconds) for each in found]
    record = {
        "checked": True, "state_mb": state_mb, "keys": keys, "skew": skew, "rate": rate, "seconds": seconds,
        "every_ms": every_ms, "store_mb_per_s": store_mb_per_s, "rounds": rounds, "results": results, "machine": about,
    }  # fmt: skip
    echo(rendered(report.latency_table(record)))
    echo(rendered(report.cost_table(record), *report.notes(record), "Every row was counted exactly once."))
    if json is not None:
        save(record, json)
    if picture is not None:
        chart.draw({each.name: report.course(each) for each in found}, os.fspath(picture))
    return record


def _refuse_unknown(strategies: Sequence[str]) -> None:
    unknown = set(strategies) - {*NAMES, SPARK}
    if unknown:
        raise ms.PlanError(f"there is no strategy {', '.join(sorted(unknown))}; there are {', '.join((*NAMES, SPARK))}")


def _session(workers: Cluster, store: int) -> SparkSession:
    """Start a session, over a store that is as slow as it is told to be."""
    classes = os.path.join(workers.directory, "classes")
    os.makedirs(classes)
    chosen = SETTINGS | (throttled.settings(classes, store) if store else {})
    spark = workers.session(**{name.replace(".", "__"): text for name, text in chosen.items()})
    set_log_level(spark, "ERROR")
    if store:
        throttled.compile_into(classes, spark)
    return spark


# --- Midstream ------------------------------------------------------------------------------------------------------


def _flow(spark: SparkSession, setting: Setting, *, live: bool) -> ms.Flow:
    flow = ms.Flow("rescale")
    rows = flow.source("load", setting.load(spark))
    if live:
        rows = flow.union("all", rows, flow.source("rows", setting.live(spark, time.time())))
    sums = rows.key_by("key").aggregate(
        "sums", slots=2, n=ms.count(), total=ms.sum("price"), newest=ms.max("number")
    )  # fmt: skip
    sums.sink("out", ms.sinks.noop())
    return flow


def _loaded(spark: SparkSession, setting: Setting) -> int:
    """Make the checkpoint that all strategies start from, every group with a snapshot; return the size of its state."""
    _written(spark, setting)
    flow = _flow(spark, setting, live=False)
    files, jobs = -(-setting.keys // _PER_EPOCH), list[ms.Job]()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.epoch >= files and jobs:
            jobs[0]._engine.housekeeping.is_in_a_hurry = True

    job = flow.start(setting.path("loaded"), trigger=ms.available_now(), listener=listen)
    jobs.append(job)
    job.await_termination()
    assert job._engine.history.last is not None
    state = job._engine.history.last.operators["sums"]
    return sum(snapshot.size for snapshot in state.snapshots if snapshot is not None)


def _written(spark: SparkSession, setting: Setting) -> None:
    """Write one row of every key to files, each of them for one epoch."""
    if not os.path.exists(setting.path("load")):
        rows = spark.range(0, setting.keys, 1, -(-setting.keys // _PER_EPOCH))
        rows.selectExpr("id as key", "id % 1000 as price", "-1L as number").write.parquet(setting.path("load"))
        for _ in range(_AFTERWARDS):
            spark.sql("select 0L as key, 1L as price, -1L as number").write.mode("append").parquet(setting.path("load"))


def _copied(setting: Setting) -> str:
    """Make a copy of the loaded checkpoint; files of the state never change and are linked.

    It stays until the end: ext4 creates files slowly, 0.5 ms each, for minutes after many beside them were deleted.
    """
    source, target = setting.path("loaded"), setting.path(f"run-{os.urandom(4).hex()}")
    shutil.copytree(source, target, ignore=lambda path, _: [layout.STATE] if path == source else [])
    shutil.copytree(os.path.join(source, layout.STATE), os.path.join(target, layout.STATE), copy_function=os.link)
    return target


def _strategies(
    spark: SparkSession, setting: Setting, names: list[str], rounds: int, echo: Callable[[str], object]
) -> list[MeasuredMove]:
    """Measure each strategy in every round, in another order each time; return the typical run of each."""
    if not names:
        return []
    echo(f"loading {setting.keys:,} keys")
    size = _loaded(spark, setting)
    echo(f"{size / 1e6:,.0f} MB of state; warming up")
    for name in (names[0], names[-1]):  # epochs still get faster in the second
        _ours(spark, setting, name)
    runs = dict[str, list[MeasuredMove]]((name, []) for name in names)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            echo(f"{name}: steady, then from 2 to 3 executors")
            runs[name].append(_ours(spark, setting, name))
    return [report.typical(each) for each in runs.values()]


@dataclass(frozen=True, slots=True)
class _WatchedMove:
    """What the epochs of a job say, before and after all its copies of state are lost."""

    cache: str  # of all executors, each in a directory below
    progress: list[Progress] = field(default_factory=list)
    after_loss: list[Progress] = field(default_factory=list)
    lose: threading.Event = field(default_factory=threading.Event)

    @property
    def lost(self) -> str:
        return f"{self.cache}-lost"

    def listen(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.progress.append(event)
            if os.path.exists(self.lost):
                self.after_loss.append(event)
            if self.lose.is_set():  # between two epochs
                os.rename(self.cache, self.lost)
                self.lose.clear()

    def is_quiet(self) -> bool:
        """Whether state is where it shall be."""
        return len(self.progress) > 5 and not any(each.copied["sums"] for each in self.progress[-3:])

    def epochs(self, queries: Sequence[StreamingQuery | None]) -> list[EpochTimes]:
        """The epochs of queries; Spark counts what an executor reads again, so rows are as they were reported."""
        rows = {each.epoch: each.rows["sums"] for each in self.progress}
        found = [each for query in dict.fromkeys(queries) if query is not None for each in epochs_of(query)]
        return [replace(epoch, rows=rows.get(epoch.number, 0)) for epoch in found]

    def empty(self) -> None:
        """Free the space of all copies; they are deleted with the rest in the end, see `_copied`."""
        for file in [*Path(self.cache).rglob("*.mdb"), *Path(self.lost).rglob("*.mdb")]:
            os.truncate(file, 0)


def _ours(spark: SparkSession, setting: Setting, name: str) -> MeasuredMove:
    checkpoint = _copied(setting)
    watched = _WatchedMove(os.path.join(setting.cache, os.path.basename(checkpoint)))
    job = _flow(spark, setting, live=True).start(
        checkpoint, trigger=ms.every(f"{setting.every} milliseconds"), on_drift="apply", listener=watched.listen,
        store_bytes_per_second=setting.store, prefetch_time="1 minute", cache=watched.cache,
    )  # fmt: skip
    with job:
        _until(lambda: job.modifications[0].phase.is_final, job=job)
        _until(watched.is_quiet, job=job)
        job.modify(ms.tune(prefetch_time=_PREFETCH)).wait(_MOST)
        job._engine.assignment.seating.warm()
        stay(setting.seconds)
        begin, queries, before = time.time(), [job.query], used()
        stay(setting.seconds)
        asked, idle = time.time(), used() - before
        move = job.modify(ms.rescale("sums", slots=3, strategy=name)).wait(_MOST)
        done = time.time()
        queries.append(job.query)  # another one after a restart
        stay(setting.seconds / 2)
        found = MeasuredMove(name, watched.epochs(queries), (begin, asked), (asked, done), idle=idle)
        watched.lose.set()
        _until(lambda: bool(watched.after_loss), job=job)
        plain = _plain_copy(setting)  # beside the epochs of a running job, as moving is
    saved = job.savepoint(os.path.join(checkpoint, "savepoint"))
    counted = spark.read.parquet(f"{saved}/state/sums/record").selectExpr("sum(n)", "max(newest)").collect()[0]
    _check(setting, name, *counted)
    watched.empty()
    _note_costs(found, move, watched, plain)
    return found


def _note_costs(found: MeasuredMove, move: ms.Modification, watched: _WatchedMove, plain: float) -> None:
    """Note what a move has copied, and what the first epoch after the loss of all copies took."""
    first = watched.after_loss[0]
    if not first.restored["sums"]:
        raise ResultError(f"{found.name}: all copies were deleted before epoch {first.epoch}, and it has restored none")
    moved = [each for each in watched.progress if move.cut is not None and move.cut.epoch < each.epoch < first.epoch]
    found.groups = int(move.note.split(" of ")[0].split()[-1])
    found.bytes = sum(each.copied["sums"] for each in moved)
    found.notes = {
        "phases": move.durations,
        "first_epoch_s": round(first.durations["total"], 2),
        "copy_mb_per_s": round(plain / 1e6),
    }
    slowest = max(moved, key=lambda each: each.copied["sums"])
    if copying := slowest.durations.get("slot.move", 0.0):
        found.notes |= {
            "cut_epoch_s": round(slowest.durations["total"], 2),
            "restored_mb_per_s": round(slowest.copied["sums"] / copying / 1e6),
        }


def _plain_copy(setting: Setting) -> float:
    """Copy files of the state, as many bytes as a third executor gets; return bytes per second, the median of some.

    All copies are kept until the last is made: one that reuses the memory of the one before is faster.
    """
    snapshots = sorted(Path(setting.path("loaded"), layout.STATE).rglob("*.mdb"))
    files, seconds = snapshots[: len(snapshots) // 3 or 1], []
    with tempfile.TemporaryDirectory(dir=setting.cache) as target:
        for turn in range(_COPIES):
            begun = time.perf_counter()
            for number, file in enumerate(files):
                shutil.copyfile(file, os.path.join(target, f"{turn}-{number}"))
            seconds.append(time.perf_counter() - begun)
    return sum(file.stat().st_size for file in files) / statistics.median(seconds)


# --- Spark's own way ------------------------------------------------------------------------------------------------


def _sparks(spark: SparkSession, setting: Setting) -> MeasuredMove:
    """The same sums as a native query: stopped between two batches, repartitioned offline, started again."""
    checkpoint, since = setting.path("native"), time.time()
    if setting.store:
        checkpoint = throttled.url(checkpoint)

    def start(partitions: int) -> StreamingQuery:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        rows = setting.load(spark).unionByName(setting.live(spark, since))
        counted = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("price"), F.max("number"))
        writer = counted.writeStream.format("noop").option("checkpointLocation", checkpoint).outputMode("update")
        return writer.trigger(processingTime=f"{setting.every} milliseconds").start()

    def stop(query: StreamingQuery) -> None:
        before = query.lastProgress["batchId"]  # type: ignore[index]
        _until(lambda: query.lastProgress["batchId"] > before and not query.status["isTriggerActive"])  # type: ignore[index]
        with quiet(spark):
            query.stop()

    _written(spark, setting)
    query = start(2)
    loaded = -(-setting.keys // _PER_EPOCH) + _AFTERWARDS + 3
    _until(lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= loaded, 600)
    stay(setting.seconds / 2)
    begin, before = time.time(), used()
    stay(setting.seconds)
    asked, idle = time.time(), used() - before
    stop(query)
    epochs = epochs_of(query)
    spark._streamingCheckpointManager.repartition(checkpoint, 3)
    query = start(3)
    _until(lambda: query.lastProgress is not None and bool(epochs_of(query)))
    done = time.time()
    stay(setting.seconds / 2)
    stop(query)
    epochs += epochs_of(query)
    state = spark.read.format("statestore").load(checkpoint)
    _check(setting, SPARK, *state.selectExpr("sum(value.count)", "max(value.max)").collect()[0])
    return MeasuredMove(SPARK, epochs, (begin, asked), (asked, done), idle=idle)


def _check(setting: Setting, name: str, counted: int, newest: int) -> None:
    """Check that all rows up to the newest, which are numbered, were counted, each of them once."""
    rows = counted - setting.keys - _AFTERWARDS
    if rows != newest + 1 or rows <= 0:
        raise ResultError(f"{name}: {rows:,} rows were counted, and the newest one has number {newest:,}")


def _until(condition: Callable[[], bool], seconds: float = _MOST, job: ms.Job | None = None) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if job is not None and not job.is_active:
            job.await_termination()  # says why
        if time.monotonic() > end:
            raise ResultError(f"nothing has happened for {seconds:g} seconds")
        pause()
