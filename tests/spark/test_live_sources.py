"""Sources are added to and removed from a running job: state and the other sources go on, no epoch twice or skipped."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.events import Progress
from midstream.testing import Live, source

SCHEMA = "k long, v long"


class Inbox:
    """A directory that a source reads a file per epoch from."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = str(root / name)
        self.lists: list[list[tuple[int, int]]] = []

    def put(self, spark: SparkSession, *rows: tuple[int, int]) -> None:
        self.lists.append(list(rows))
        source(spark, self.path, SCHEMA, self.lists)

    def reader(self) -> Callable[[SparkSession], DataFrame]:
        path = self.path

        def read(spark: SparkSession, max_rows: int = 1) -> DataFrame:  # as many files
            return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", max_rows).parquet(path)

        Path(path).mkdir(exist_ok=True)
        return read


def sums(flow: ms.Flow, a: ms.Stream, out: Any) -> None:
    a.key_by("k").aggregate("sums", total=ms.sum("v"), n=ms.count()).sink("out", out)


@pytest.fixture
def out() -> Any:
    return ms.sinks.memory()


@pytest.fixture
def live(spark: SparkSession, out: Any) -> Iterator[Live]:
    with Live(spark, lambda flow, a: sums(flow, a, out), a=SCHEMA) as running:
        yield running


def last(out: Any) -> dict[int, tuple[int, int]]:
    """The newest sum and count of each key."""
    return {row.k: (row.total, row.n) for row in out.rows()}


def united(id: str, inbox: Inbox) -> list[Any]:
    return [ms.add_source(id, inbox.reader()), ms.insert("all", ms.union(id), after="a")]


def joined(spark: SparkSession, tmp_path: Path, live: Live, out: Any) -> Inbox:
    """Add a source with one row, and wait until it is counted."""
    b = Inbox(tmp_path, "b")
    b.put(spark, (1, 1))
    live.modify(*united("b", b))
    until(live, lambda: last(out) == {1: (1, 1)})
    return b


def test_an_added_source_joins_the_others_and_state_goes_on(
    spark: SparkSession, tmp_path: Path, live: Live, out: Any
) -> None:
    b = Inbox(tmp_path, "b")
    b.put(spark, (1, 100))
    live.feed("a", [(1, 1), (2, 2)])
    added = live.modify(*united("b", b))
    assert added.phase is ms.Phase.COMPLETED
    live.feed("a", [(1, 10)])
    until(live, lambda: last(out) == {1: (111, 3), 2: (2, 1)})
    b.put(spark, (2, 200))
    until(live, lambda: last(out) == {1: (111, 3), 2: (202, 2)})
    assert [p.epoch for p in live.progress] == list(range(len(live.progress))), "no epoch is skipped or run twice"
    assert "b (source)" in live.job.plan.explain()
    assert added.cut is not None
    assert {p.version for p in live.progress if p.epoch >= added.cut.epoch} == {2}
    assert {p.version for p in live.progress if p.epoch < added.cut.epoch} == {1}


def test_a_removed_source_is_not_seen_any_more_and_goes_on_where_it_was_when_added_again(
    spark: SparkSession, tmp_path: Path, live: Live, out: Any
) -> None:
    b = joined(spark, tmp_path, live, out)
    live.modify(ms.remove_source("b"))
    b.put(spark, (1, 1000))
    dropped = len(live.progress) + 3
    until(live, lambda: len(live.progress) >= dropped)
    again = live.modify(ms.add_source("b", b.reader()), ms.insert("more", ms.union("b"), after="all"))
    b.put(spark, (1, 5))
    until(live, lambda: last(out) == {1: (6, 2)})
    again.undo().wait(60)
    live.feed("a", [(1, 1)])
    assert last(out) == {1: (7, 3)}


def test_a_forgotten_source_leaves_its_number_and_begins_anew(
    spark: SparkSession, tmp_path: Path, live: Live, out: Any
) -> None:
    b = joined(spark, tmp_path, live, out)
    with pytest.raises(ms.PlanError, match=r"part of the running plan; remove it first.*remove_source"):
        live.job.forget("b")
    live.modify(ms.remove_source("b"))
    live.job.forget("b")
    shutil.rmtree(b.path)  # nobody reads it any more
    live.feed("a", [(1, 10)])
    b.put(spark, (1, 100))
    live.modify(ms.add_source("b", b.reader()), ms.insert("more", ms.union("b"), after="all"))
    until(live, lambda: last(out) == {1: (112, 4)}, "both files, from the beginning")


def test_a_source_that_cannot_be_read_is_rolled_back_and_the_job_goes_on(
    spark: SparkSession, tmp_path: Path, live: Live, out: Any
) -> None:
    live.feed("a", [(1, 1)])

    def nobody_listens(spark: SparkSession) -> DataFrame:
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
        return lines.selectExpr("cast(value as long) k", "cast(value as long) v")

    bad = live.job.modify(ms.add_source("b", nobody_listens), ms.insert("all", ms.union("b"), after="a"))
    with pytest.raises(ms.ModificationError, match="Connection refused"):
        bad.wait(60)
    assert bad.phase is ms.Phase.ROLLED_BACK
    assert live.job.is_active
    assert live.job.plan.version == 1
    live.feed("a", [(1, 2)])
    assert last(out) == {1: (3, 2)}
    good = Inbox(tmp_path, "good")
    good.put(spark, (1, 4))
    live.modify(*united("b", good))
    until(live, lambda: last(out) == {1: (7, 3)})


def test_an_added_source_survives_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    a, b = Inbox(tmp_path, "a"), Inbox(tmp_path, "b")
    a.put(spark, (1, 1))
    b.put(spark, (1, 10))
    target = str(tmp_path / "out")

    def start(**options: Any) -> ms.Job:
        flow = ms.Flow("restarted")
        rows = flow.source("a", a.reader())
        rows.key_by("k").aggregate("sums", total=ms.sum("v")).sink("out", ms.sinks.files(target, format="parquet"))
        return flow.start(str(tmp_path / "ck"), trigger=ms.every(0), cache=str(tmp_path / "cache"), **options)

    with start() as job:
        job.modify(*united("b", b)).wait(60)
    a.put(spark, (1, 100))
    b.put(spark, (1, 1000))
    with pytest.raises(ms.PlanError, match="removed 'b', 'all'"):
        start()
    with start(on_drift="keep") as job:
        found: Counter[Any] = Counter()
        while not found or max(row.total for row in found) < 1111:
            assert job.is_active, job.exception
            if job.last_progress is not None and Path(target).exists():
                found = Counter(spark.read.parquet(target).collect())
    assert max(found.values()) == 1
    assert max(row.total for row in found) == 1111


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda b: [ms.add_source("a", b)], "the id 'a' is used already"),
        (lambda b: [ms.add_source("b", b), ms.insert("all", ms.union("c"), after="a")], "'all' reads 'c'"),
        (lambda b: [ms.remove_source("a")], r"'a' is read by 'sums'.*same step"),
        (lambda b: [ms.remove_source("sums")], "is an aggregate, not a source"),
        (lambda b: [ms.remove("a")], r"ms.remove_source\('a'\)"),
        (lambda b: [ms.tune(max_rows_per_epoch=5)], r"none of the sources a can be limited.*max_rows"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(
    live: Live, tmp_path: Path, changes: Callable[[Any], list[Any]], message: str
) -> None:
    query = live.job.query
    with pytest.raises(ms.ModificationError, match=message):
        live.modify(*changes(Inbox(tmp_path, "b").reader()))
    assert live.job.query is query


def test_a_source_of_a_running_job_is_given_as_a_function(spark: SparkSession, tmp_path: Path) -> None:
    frame = Inbox(tmp_path, "b").reader()(spark)
    with pytest.raises(ms.PlanError, match="needs a function of the session"):
        ms.add_source("b", frame)  # type: ignore[arg-type]
    with pytest.raises(ms.PlanError, match=r"must be a streaming DataFrame.*not a batch DataFrame"):
        ms.add_source("b", lambda spark: spark.range(5))


def test_tuning_exchanges_the_query_and_is_undone(spark: SparkSession, tmp_path: Path, out: Any) -> None:
    a = Inbox(tmp_path, "a")
    for n in range(4):
        a.put(spark, (n, n))
    flow = ms.Flow("tuned")
    sums(flow, flow.source("a", a.reader()), out)
    seen: list[Progress] = []
    with flow.start(
        str(tmp_path / "ck"),
        trigger=ms.every(0),
        cache=str(tmp_path / "cache"),
        listener=lambda event: seen.append(event) if isinstance(event, Progress) else None,
    ) as job:
        wait_for(job, lambda: len(last(out)) == 4)
        assert max(sum(p.rows.values()) for p in seen) == 1
        tuned = job.modify(ms.tune(max_rows_per_epoch=3, epoch_interval="2 seconds", rows_per_arrow_batch=7)).wait(60)
        before = len(seen)
        for n in range(4, 8):
            a.put(spark, (n, n))
        wait_for(job, lambda: len(last(out)) == 8)
        assert max(sum(p.rows.values()) for p in seen[before:]) > 1
        assert spark_interval(job) == "ProcessingTimeTrigger(2000)" or "2000" in spark_interval(job)
        tuned.undo().wait(60)
        assert job.plan.tuning == ms.Flow("x").plan().tuning
        assert "2000" not in spark_interval(job)
    assert [p.epoch for p in seen] == list(range(len(seen)))


def test_a_tuned_budget_copies_what_is_read_in_place(spark: SparkSession, tmp_path: Path, out: Any) -> None:
    a, cache = Inbox(tmp_path, "a"), tmp_path / "cache"
    for n in range(3):  # enough for a snapshot
        a.put(spark, *((k, n) for k in range(3000)))

    def start(trigger: ms.Trigger) -> ms.Job:
        flow = ms.Flow("prefetch")
        sums(flow, flow.source("a", a.reader()), out)
        options = {"groups": 1, "restore_in_place": True, "prefetch_budget": 0}
        return flow.start(str(tmp_path / "ck"), trigger=trigger, cache=str(cache), **options)

    def in_place() -> list[bool]:
        return [os.readlink(path).endswith(".base") for path in cache.rglob("*.current")]

    start(ms.available_now()).await_termination(60)
    shutil.rmtree(cache)
    with start(ms.every(0)) as job:
        a.put(spark, (1, 5))
        wait_for(job, lambda: last(out)[1] == (8, 4))
        assert in_place() == [True]
        job.modify(ms.tune(prefetch_budget=1 << 30)).wait(60)
        a.put(spark, (1, 7))
        wait_for(job, lambda: last(out)[1] == (15, 5))
        assert in_place() == [False]


def spark_interval(job: ms.Job) -> str:
    """The trigger of the query at hand, as Spark has it."""
    assert job.query is not None
    return str(job.query._jsq.streamingQuery().trigger().toString())


def until(live: Live, condition: Callable[[], bool], why: str = "") -> None:
    for _ in range(100):
        if condition():
            return
        live.next_epoch()
    raise AssertionError(why or "it did not come about in 100 epochs")


def wait_for(job: ms.Job, condition: Callable[[], bool], why: str = "") -> None:
    """Wait for something that a running job brings about."""
    import time

    end = time.monotonic() + 60
    while not condition():
        assert job.is_active, job.exception
        assert time.monotonic() < end, why
        time.sleep(0.02)
