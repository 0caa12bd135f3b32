"""A script that differs from the plan that its checkpoint ran last."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint.records import Phase

SCHEMA = "k long, v long"


def test_a_changed_flow_is_drift_and_the_user_decides(spark: SparkSession, tmp_path: Path) -> None:
    def flow(limit: int, out: Any) -> ms.Flow:
        built = ms.Flow("drift")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, [[(1, 10), (1, 99)]] * epochs)
        rows = built.source("rows", frame).transform("big", lambda df: df.where(f"v > {limit}"))
        rows.key_by("k").aggregate("sums", total=ms.sum("v")).sink("out", out)
        return built

    def run(limit: int, **options: Any) -> list[int]:
        out = ms.sinks.memory()
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        job = flow(limit, out).start(tmp_path / "checkpoint", **options)
        job.await_termination()
        modified[:] = job.modifications
        return [row.total for row in out.rows()]

    epochs, modified = 1, list[ms.Modification]()
    assert run(0) == [109]
    epochs = 2
    with pytest.raises(ms.PlanError, match=r"differs from plan version 1 .*changed 'big'.*on_drift='apply'"):
        run(50)
    assert run(50, on_drift="apply") == [109 + 99]
    assert [str(one) for one in modified] == ["1: start with the changed flow 'drift'"]
    assert [one.phase for one in modified] == [Phase.COMPLETED]
    epochs = 3
    assert run(0, on_drift="keep") == [109 + 99 + 99]
    assert run(50) == []


def test_a_plan_that_does_not_fit_together_any_more_is_left_behind(spark: SparkSession, tmp_path: Path) -> None:
    def run(epochs: int, function: Any, **options: Any) -> list[Any]:
        flow, out = ms.Flow("drift"), ms.sinks.memory()
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, [[(1, 10)]] * epochs)
        rows = flow.source("rows", frame).transform("named", function)
        rows.key_by("k").aggregate("sums", total=ms.sum("v")).sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        flow.start(tmp_path / "checkpoint", **options).await_termination()
        return [row.total for row in out.rows()]

    spark.range(5).selectExpr("id as k").createOrReplaceTempView("known_for_a_while")
    assert run(1, lambda df: df.join(df.sparkSession.table("known_for_a_while"), "k")) == [10]
    spark.catalog.dropTempView("known_for_a_while")
    assert run(2, lambda df: df.where("v > 0"), on_drift="apply") == [20]


class Fails(ms.KeyedFunction):
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += 10 // sum(row.v for row in rows)
        yield key, self.total


class Fixed(ms.KeyedFunction):
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += sum(row.v for row in rows)
        yield key, self.total


class Forgets(ms.KeyedFunction):
    total = ms.value("long", default=0, ttl="1 hour")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        yield key, 1


def test_a_function_that_failed_is_replaced_by_a_fixed_one_and_the_epoch_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(function: ms.KeyedFunction, epochs: int, **options: Any) -> list[Any]:
        flow, out = ms.Flow("fixed"), ms.sinks.memory()
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, [[(1, 5)], [(1, 0)], [(1, 2)]][:epochs])
        flow.source("rows", frame).key_by("k").process("sums", function, schema="k long, n long").sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        flow.start(tmp_path / "checkpoint", **options).await_termination()
        return out.rows()

    assert run(Fails(), 1) == [(1, 2)]
    with pytest.raises(ms.JobError, match="ZeroDivisionError"):
        run(Fails(), 2)
    with pytest.raises(ms.PlanError, match=r"the state of operator 'sums' is .*ttl"):
        run(Forgets(), 2, on_drift="apply")
    assert run(Fixed(), 3, on_drift="apply") == [(1, 2), (1, 4)]


def test_a_flow_that_fails_in_its_first_epoch_is_rolled_back(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def start(function: ms.KeyedFunction, batches: list[Any], **options: Any) -> tuple[ms.Job, list[Any]]:
        flow, out = ms.Flow("back"), ms.sinks.memory()
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, batches)
        flow.source("rows", frame).key_by("k").process("sums", function, schema="k long, n long").sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        job = flow.start(tmp_path / "checkpoint", **options)
        job.await_termination()
        return job, out.rows()

    assert start(Fixed(), [[(1, 5)]])[1] == [(1, 5)]
    batches = [[(1, 5)], [(1, 0)], [(1, 2)]]
    with caplog.at_level(logging.WARNING, "midstream"):
        job, rows = start(Fails(), batches, on_drift="apply")
    assert rows == [(1, 5), (1, 7)], "both epochs ran under the old plan"
    [drifted] = job.modifications
    assert drifted.phase is Phase.ROLLED_BACK
    assert "ZeroDivisionError" in drifted.error
    assert "was rolled back, and the job goes on" in caplog.text
    assert start(Fixed(), batches)[0].plan.version == 1, "the script that runs is no drift"


def test_a_flow_without_a_source_that_the_old_one_reads_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    def run(*ids: str, **options: Any) -> tuple[ms.Job, list[Any]]:
        flow, out = ms.Flow("fewer"), ms.sinks.memory()
        streams = [
            flow.source(id, testing.source(spark, str(tmp_path / id), SCHEMA, [[(n, 1)]] * epochs))
            for n, id in enumerate(ids)
        ]
        rows = streams[0] if len(streams) == 1 else flow.union("all", *streams)
        rows.key_by("k").aggregate("sums", total=ms.sum("v")).sink("out", out)
        options |= {"trigger": ms.available_now(), "cache": tmp_path / "cache"}
        job = flow.start(tmp_path / "checkpoint", **options)
        job.await_termination()
        return job, sorted(tuple(row)[:2] for row in out.rows())

    epochs = 1
    run("a", "b")
    epochs = 2
    job, rows = run("a", on_drift="apply")
    assert rows == [(0, 2)]
    assert (job.plan.version, job.modifications) == (2, [])


def test_a_rescaled_operator_keeps_its_slots_over_a_restart_unless_the_script_asks_for_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The plan of a version stays what it was, so a rescale can be undone after a restart too."""

    def start(slots: int, on_drift: str = "fail") -> ms.Job:
        built = ms.Flow("slots")
        frame = testing.source(spark, str(tmp_path / "input"), SCHEMA, [[(i, i) for i in range(20)]])
        keyed = built.source("rows", frame).key_by("k")
        keyed.aggregate("sums", total=ms.sum("v"), slots=slots).sink("out", ms.sinks.noop())
        place: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "cache": tmp_path / "cache"}
        return built.start(**place, trigger=ms.every(0), on_drift=on_drift)

    def slots_of(job: ms.Job) -> Any:
        return job.plan["sums"].slots  # type: ignore[union-attr]

    with start(2) as job:
        job.modify(ms.rescale("sums", slots=3)).wait(60)
        job.modify(ms.replace("sums", ms.key_by("k").aggregate(total=ms.sum("v"), n=ms.count()))).cancel()
        assert slots_of(job) == 3
    with start(2) as job:
        assert slots_of(job) == 3
        job.modifications[0].undo().wait(60)
        assert slots_of(job) == 2
        job.modify(ms.rescale("sums", slots=3)).wait(60)
    with start(4, on_drift="keep") as job:
        assert slots_of(job) == 3, "the plan of the checkpoint is kept, its slots too"
    with start(4) as job:
        assert slots_of(job) == 4
        assert job.plan.version not in {one.version for one in job.modifications}
