"""Promises about modifications, shadows and threads that attacks have broken: each test here failed once."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import After, Event, Exchanging, Progress, Step
from midstream.testing import Live
from tests.spark.test_promises import SCHEMA, flow, lists

# --- 6: what is armed is waited for -----------------------------------------------------------------------------------


def test_a_modification_that_a_start_has_armed_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """The flow of the start is armed; what is submitted at once comes after it, and neither is lost."""
    started = threading.Event()

    def build(limit: int) -> ms.Flow:
        built = ms.Flow("armed")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, lists(4))
        rows = built.source("rows", frame).transform("big", lambda df: df.where(f"v >= {limit}"))
        rows.sink("out", ms.sinks.noop())
        return built

    def hold(event: Event) -> None:
        if isinstance(event, Exchanging) and event.step == "started":
            return
        if isinstance(event, (After,)):
            started.wait(60)

    options: dict[str, Any] = {"cache": tmp_path / "cache", "on_drift": "apply"}
    build(0).start(tmp_path / "c", trigger=ms.available_now(), **options).await_termination()
    testing.source(spark, str(tmp_path / "input"), SCHEMA, lists(6))
    job = build(10).start(tmp_path / "c", trigger=ms.every(0), listener=hold, **options)
    second = job.modify(ms.insert("more", lambda df: df.where("k < 9"), after="big"))
    started.set()
    second.wait(60)
    phases = [one.phase for one in job.modifications]
    job.stop()
    assert phases == [ms.Phase.COMPLETED, ms.Phase.COMPLETED]
    assert [o.id for o in job.plan.operators] == ["rows", "big", "more", "out"]
    assert "v >= {limit}" in job.plan["big"].code.source  # type: ignore[union-attr]


def test_a_modification_that_was_armed_when_the_driver_died_is_not_overwritten_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A copy of the checkpoint, made while it is armed, is what a driver that dies then leaves."""
    armed, resume = threading.Event(), threading.Event()

    def begin(directory: str, **options: Any) -> ms.Job:
        built = ms.Flow("dies")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, lists(4))
        rows = built.source("rows", frame).transform("big", lambda df: df.where("v >= 0"))
        rows.sink("out", ms.sinks.noop())
        place = {"checkpoint": tmp_path / directory, "cache": tmp_path / f"{directory}-cache"}
        return built.start(**place, trigger=ms.every(0), on_drift="keep", **options)

    def stand_still(event: Event) -> None:
        """Hold an epoch before its plan is decided, once there is a modification to wait for it."""
        if isinstance(event, Progress) and event.epoch >= 1:
            armed.set()
            resume.wait(60)

    job = begin("first", listener=stand_still)
    assert armed.wait(60)
    job.modify(ms.replace("big", lambda df: df.where("v >= 10")))
    wait_until(lambda: [one.phase for one in job.modifications] == [ms.Phase.ARMED])
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    resume.set()
    job.stop()
    with begin("copy") as job:
        job.modify(ms.insert("more", lambda df: df.where("k < 9"), after="big")).wait(60)
        assert [one.phase for one in job.modifications] == [ms.Phase.COMPLETED, ms.Phase.COMPLETED]
        assert "v >= 10" in job.plan["big"].code.source  # type: ignore[union-attr]
        assert "more" in [operator.id for operator in job.plan.operators]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_modification_is_cancelled_wherever_it_stands(spark: SparkSession) -> None:
    go_on, hung = threading.Event(), threading.Event()

    def build(flow: ms.Flow, a: ms.Stream) -> None:
        a.transform("same", lambda df: df).sink("out", out)

    def hangs(df: Any) -> Any:
        hung.set()
        while not go_on.wait(0.05):
            pass
        return df

    out = ms.sinks.memory()
    with Live(spark, build, a=SCHEMA) as live:
        live.feed("a", [(1, 1)])
        in_dry_run = live.job.modify(ms.replace("same", hangs))
        queued = live.job.modify(ms.replace("same", lambda df: df.where("v > 5")))
        assert hung.wait(60)
        queued.cancel()
        in_dry_run.cancel()
        for one in (in_dry_run, queued):
            with pytest.raises(ms.ModificationError, match="Cancelled"):
                one.wait(60)
        live.feed("a", [(1, 2)])
        done = live.modify(ms.replace("same", lambda df: df.where("v > 2")))
        with pytest.raises(ms.PlanError, match=r"is Completed, so it cannot be cancelled; undo\(\) it"):
            done.cancel()
        live.feed("a", [(1, 1), (1, 3)])
        assert [row.v for row in out.rows()] == [1, 2, 3]


# --- 13: shadows ------------------------------------------------------------------------------------------------------


def test_a_shadow_ends_when_the_job_is_modified_under_it(spark: SparkSession) -> None:
    def build(flow: ms.Flow, a: ms.Stream) -> None:
        a.transform("same", lambda df: df).sink("out", ms.sinks.memory())

    with Live(spark, build, a=SCHEMA) as live:
        live.feed("a", [(1, 1)])
        shadow = live.job.shadow(ms.insert("less", lambda df: df.where("v < 3"), after="same"))
        live.modify(ms.insert("more", lambda df: df.where("k > 0"), after="same"))
        live.feed("a", [(1, 2)])
        assert not shadow.is_active
        assert "the job was modified since the shadow began (plan version 1 became 2)" in shadow.error
        with pytest.raises(ms.JobError, match="nothing was promoted"):
            shadow.promote()


def test_a_shadow_takes_a_whole_flow(spark: SparkSession) -> None:
    out = ms.sinks.memory()

    def build(flow: ms.Flow, a: ms.Stream) -> None:
        a.transform("same", lambda df: df).sink("out", out)

    with Live(spark, build, a=SCHEMA) as live:
        live.feed("a", [(1, 1)])
        other = ms.Flow("live")
        rows = other.source("a", live._source("a"))
        rows.transform("same", lambda df: df.where("v < 3")).sink("out", out)
        shadow = live.job.shadow(other)
        live.feed("a", [(1, 2), (1, 3)])
        assert shadow.differences["out"].missing == 1


# --- 14: calls from the wrong thread ----------------------------------------------------------------------------------


def test_calls_that_would_wait_for_their_own_thread_are_refused_and_stop_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    refused: dict[str, str] = {}
    job: list[ms.Job] = []
    begun = threading.Event()

    def attempt(where: str) -> None:
        begun.wait(60)
        calls = {
            "savepoint": lambda: job[0].savepoint(tmp_path / f"saved-{where}"),
            "wait": lambda: job[0].modify(ms.replace("nobody", lambda df: df)).wait(60),
            "shadow": lambda: job[0].shadow(ms.remove("out")),
            "await_termination": lambda: job[0].await_termination(60),
        }
        for name, call in calls.items():
            try:
                call()
            except ms.JobError as error:
                refused[f"{where} {name}"] = str(error)

    def listen(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            attempt("listener")
            job[0].stop()

    def publish(df: Any, epoch: int) -> None:
        if epoch == 0:
            attempt("sink")

    built = flow(spark, tmp_path, 50, ms.sinks.foreach_batch(publish))
    job.append(built.start(tmp_path / "checkpoint", trigger=ms.every(0), cache=tmp_path / "cache", listener=listen))
    begun.set()
    assert job[0].await_termination(60), "stop() from a listener stops the job"
    names = ("savepoint", "wait", "shadow", "await_termination")
    assert set(refused) == {f"{where} {name}" for where in ("listener", "sink") for name in names}
    assert all("Call it from another thread" in error for error in refused.values())
    last = job[0].status.epoch
    assert last < 49


def test_stopping_a_job_does_not_wait_for_a_dry_run_that_hangs(spark: SparkSession) -> None:
    hung = threading.Event()

    def build(flow: ms.Flow, a: ms.Stream) -> None:
        a.transform("same", lambda df: df).sink("out", ms.sinks.memory())

    def hangs(df: Any) -> Any:
        hung.set()
        while True:
            threading.Event().wait(0.05)

    with Live(spark, build, a=SCHEMA) as live:
        live.feed("a", [(1, 1)])
        modification = live.job.modify(ms.replace("same", hangs))
        assert hung.wait(60)
        stopper = threading.Thread(target=live.job.stop, daemon=True)
        stopper.start()
        stopper.join(30)  # its deadline is a minute
        assert not stopper.is_alive()
        assert modification.phase is ms.Phase.FAILED
