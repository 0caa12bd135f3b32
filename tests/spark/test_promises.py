"""Promises that attacks have broken: each test here failed once, on a job that looked healthy."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import midstream as ms
from midstream import testing
from midstream.cli import app
from midstream.events import After, Event, Republish, Step
from midstream.sinks.contract import LostRowsError
from midstream.testing import Live

SCHEMA = "k long, v long"


def lists(count: int) -> list[list[tuple[int, int]]]:
    return [[(i % 3, 10 * number + i) for i in range(5)] for number in range(count)]


class Total(ms.KeyedFunction):
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += len(rows)
        yield key, self.total


def flow(spark: SparkSession, root: Path, epochs: int, sink: Any) -> ms.Flow:
    built = ms.Flow("promises")
    frame = testing.source(spark, str(root / "input"), SCHEMA, lists(epochs))
    built.source("rows", frame).sink("out", sink)
    return built


def written(root: Path) -> Counter[tuple[int, ...]]:
    import duckdb

    found = duckdb.sql(f"select k, v from '{root}/out/epoch=*/*.parquet'").fetchall()
    return Counter(found)


def expected(epochs: int) -> Counter[tuple[int, ...]]:
    return Counter(row for rows in lists(epochs) for row in rows)


# --- 1: the end of the input ------------------------------------------------------------------------------------------


def stopped_early(spark: SparkSession, root: Path, epochs: int, sink: Any) -> None:
    """Run with a heartbeat, and stop after the first epoch that has rows."""
    seen = threading.Event()

    def listen(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            seen.set()

    job = flow(spark, root, epochs, sink).start(
        root / "checkpoint", trigger=ms.every(0), cache=root / "cache", listener=listen
    )
    assert seen.wait(60)
    job.stop()


@pytest.mark.parametrize("end_of_input", [True, False])
def test_available_now_after_every_takes_all_rows_and_keeps_to_the_limits(
    spark: SparkSession, tmp_path: Path, end_of_input: bool
) -> None:
    epochs, progress = 12, list[Event]()
    sink = ms.sinks.files(tmp_path / "out")
    stopped_early(spark, tmp_path, epochs, sink)
    job = flow(spark, tmp_path, epochs, sink).start(
        tmp_path / "checkpoint",
        trigger=ms.available_now(end_of_input=end_of_input),
        cache=tmp_path / "cache",
        listener=progress.append,
    )
    assert job.await_termination(120)
    assert written(tmp_path) == expected(epochs)
    assert job._engine.history.last is not None
    assert job._engine.history.last.final is end_of_input
    files = [len(os.listdir(directory)) for directory in (tmp_path / "out").glob("epoch=*")]
    assert len(files) > epochs // 2, "one file of input an epoch, but where a query follows another"


def test_input_that_goes_on_is_not_declared_ended(spark: SparkSession, tmp_path: Path) -> None:
    """Files that come while the last ones are read are read too."""
    late = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, After) and event.step is Step.PUBLISH and not late.is_set():
            late.set()
            testing.source(spark, str(tmp_path / "input"), SCHEMA, lists(5))

    job = flow(spark, tmp_path, 2, ms.sinks.files(tmp_path / "out")).start(
        tmp_path / "checkpoint",
        trigger=ms.available_now(end_of_input=True),
        cache=tmp_path / "cache",
        listener=listen,
    )
    assert job.await_termination(120)
    assert written(tmp_path) == expected(5)


def test_a_source_without_end_is_refused_as_ended_input(spark: SparkSession, tmp_path: Path) -> None:
    endless = ms.Flow("endless")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    endless.source("ticks", rate).sink("out", ms.sinks.noop())
    job = endless.start(tmp_path / "c", trigger=ms.available_now(end_of_input=True), cache=tmp_path / "cache")
    with pytest.raises(ms.JobError, match=r"'ticks' had more rows .*it has not ended"):
        job.await_termination(120)


# --- 2 and 3: sinks and history ---------------------------------------------------------------------------------------


def run(spark: SparkSession, root: Path, epochs: int, sink: Any, **options: Any) -> ms.Job:
    job = flow(spark, root, epochs, sink).start(
        root / "checkpoint", trigger=ms.available_now(), cache=root / "cache", **options
    )
    job.await_termination()
    return job


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_backup_of_the_checkpoint_without_the_sink_is_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    sink = ms.sinks.files(tmp_path / "out") if kind == "files" else ms.sinks.delta(tmp_path / "table")
    run(spark, tmp_path, 2, sink)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    run(spark, tmp_path, 4, sink)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "backup", tmp_path / "checkpoint")
    with pytest.raises(ms.SinkError, match="it has rows of epoch 3, the checkpoint ends with epoch 1"):
        run(spark, tmp_path, 6, sink)
    told = CliRunner().invoke(app, ["sinks", str(tmp_path / "checkpoint")])
    assert told.exit_code == 1
    assert "DIFFERS  out" in told.stdout
    assert "ahead of the checkpoint: it has rows of epoch 3" in told.stdout


def test_a_sink_that_is_restored_along_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    sink = ms.sinks.files(tmp_path / "out")
    run(spark, tmp_path, 2, sink)
    for each in ("checkpoint", "out"):
        shutil.copytree(tmp_path / each, tmp_path / f"{each}-backup")
    run(spark, tmp_path, 4, sink)
    for each in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / each)
        shutil.copytree(tmp_path / f"{each}-backup", tmp_path / each)
    run(spark, tmp_path, 6, sink)
    assert written(tmp_path) == expected(6)
    told = CliRunner().invoke(app, ["sinks", str(tmp_path / "checkpoint")])
    assert told.exit_code == 0, told.stdout
    assert "ok       out" in told.stdout


def test_rows_that_a_sink_has_lost_are_missed_unless_that_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    sink = ms.sinks.files(tmp_path / "out")
    run(spark, tmp_path, 2, sink)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ms.SinkError, match=r"'out' has lost rows: it has no rows of this job.*on_lost_output='accept'"):
        run(spark, tmp_path, 3, sink)
    run(spark, tmp_path, 3, sink, on_lost_output="accept")
    assert written(tmp_path) == Counter(lists(3)[2])


def test_a_directory_that_is_deleted_while_the_job_runs_ends_it_with_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    def listen(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            shutil.rmtree(tmp_path / "out")

    sink = ms.sinks.files(tmp_path / "out")
    with pytest.raises(LostRowsError, match="was deleted, emptied or exchanged while the job ran: it had epoch 1"):
        run(spark, tmp_path, 4, sink, listener=listen, publish_tries=1)
    with pytest.raises(ms.SinkError, match="'out' has lost rows"):
        run(spark, tmp_path, 4, sink)
    run(spark, tmp_path, 4, sink, on_lost_output="accept")
    assert written(tmp_path) == Counter(row for rows in lists(4)[2:] for row in rows)


def test_rows_that_vanish_between_commit_and_publication_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    staged = tmp_path / "out" / ".midstream" / "out"

    def listen(event: Event) -> None:
        if event == After(Step.COMMIT, 1):
            for run in staged.iterdir():
                shutil.rmtree(run)

    sink = ms.sinks.files(tmp_path / "out")
    with pytest.raises(LostRowsError, match=r"rows of epoch 1 were staged in .* is gone from there"):
        run(spark, tmp_path, 3, sink, listener=listen, publish_tries=1)
    with pytest.raises(LostRowsError, match="rows of epoch 1"):
        run(spark, tmp_path, 3, sink)
    run(spark, tmp_path, 3, sink, on_lost_output="accept")
    assert written(tmp_path) == Counter(lists(3)[0] + lists(3)[2])


class Shaky(ms.sinks.Sink):
    """Takes an epoch only after it was asked some times."""

    guarantee = "in the end"

    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    def stage(self, df: Any, staging: Any) -> Any:
        return ms.sinks.Staged(staging.sink, staging.job, staging.epoch, staging.spool, ("rows",))

    def publish(self, staged: Any, spark: SparkSession) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionError("the server is starting")

    def clean(self, what: Any) -> None:
        pass

    def describe(self) -> str:
        return "shaky"


def test_a_sink_that_cannot_publish_is_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    sink, told = Shaky(2), list[Event]()
    run(spark, tmp_path, 1, sink, listener=told.append)
    assert [(event.attempt, event.sink) for event in told if isinstance(event, Republish)] == [(1, "out"), (2, "out")]
    assert sink.asked == 3


# --- 5: an id that is forgotten and used again ------------------------------------------------------------------------


def test_an_operator_under_a_forgotten_id_begins_empty(spark: SparkSession) -> None:
    out, again = ms.sinks.memory(), ms.sinks.memory()

    def counted(stream: ms.Stream) -> ms.Stream:
        return stream.key_by("k").process("sums", Total(), schema="k long, n long")

    def build(flow: ms.Flow, a: ms.Stream) -> None:
        same = a.transform("same", lambda df: df)
        same.sink("all", ms.sinks.noop())
        counted(same).sink("out", out)

    with Live(spark, build, a=SCHEMA) as live:
        for _ in range(8):
            live.feed("a", [(1, 1)])
        live.modify(ms.remove_sink("out"), ms.remove("sums"))
        live.job.forget("sums")
        live.modify(ms.branch("same", lambda same: counted(same).sink("again", again)))
        live.feed("a", [(1, 1)])
        live.feed("a", [(1, 1)])
        assert [row.n for row in again.rows()] == [1, 2]
        homes = os.listdir(Path(live.job._engine.context.journal.storage.root) / "state" / "sums")
        assert len(homes) == 1, "what was forgotten is deleted"


def test_a_forgotten_operator_stays_forgotten_over_a_restart_before_the_next_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(with_sums: bool, out: Any) -> ms.Flow:
        built = ms.Flow("forgets")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, [[(1, 1)]] * epochs)
        rows = built.source("rows", frame)
        rows.sink("all", ms.sinks.noop())
        if with_sums:
            rows.key_by("k").process("sums", Total(), schema="k long, n long").sink("out", out)
        return built

    def start(with_sums: bool, forgets: int | None = None) -> list[int]:
        out, known, job = ms.sinks.memory(), threading.Event(), list[ms.Job]()

        def listen(event: Event) -> None:
            if event == After(Step.PUBLISH, forgets or -1):
                assert known.wait(60)
                job[0].forget("sums")  # no epoch follows in this process

        job.append(
            build(with_sums, out).start(
                tmp_path / "checkpoint",
                trigger=ms.available_now(),
                cache=tmp_path / "cache",
                on_drift="apply",
                listener=listen,
            )
        )
        known.set()
        job[0].await_termination()
        return [row.n for row in out.rows()]

    epochs = 3
    assert start(True) == [1, 2, 3]
    epochs = 4
    assert start(False, forgets=3) == []
    epochs = 5
    assert start(True) == [1]


def test_a_sink_that_has_another_target_now_has_lost_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def start(epochs: int, target: Any) -> None:
        built = ms.Flow("targets")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, lists(epochs))
        built.source("rows", frame).sink("out", target)
        options: dict[str, Any] = {"trigger": ms.available_now(), "cache": tmp_path / "cache", "on_drift": "apply"}
        built.start(tmp_path / "checkpoint", **options).await_termination()

    one, other = (lambda: ms.sinks.files(tmp_path / "one")), (lambda: ms.sinks.files(tmp_path / "other"))
    start(2, one())
    start(3, other())
    start(3, other())
    start(4, one())
    start(4, one())
    found = {name: len(list((tmp_path / name).glob("epoch=*"))) for name in ("one", "other")}
    assert found == {"one": 3, "other": 1}


# --- 16: what goes away under a job -----------------------------------------------------------------------------------


def test_a_checkpoint_that_is_deleted_under_a_job_ends_it(spark: SparkSession, tmp_path: Path) -> None:
    def listen(event: Event) -> None:
        if event == After(Step.RUN, 1):
            shutil.rmtree(tmp_path / "checkpoint")

    with pytest.raises(ms.CheckpointError, match="was deleted, moved or exchanged while the job ran"):
        run(spark, tmp_path, 3, ms.sinks.noop(), listener=listen)
