"""Jobs that keep their state in sorted runs: the same results as in LMDB, whatever is done to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError, PlanError
from midstream.job.store import check_where_it_runs
from midstream.testing import Live, ManualClock
from tests.faults import workload

RUNS = {"store": "runs"}
EPOCHS = 14  # more than what is merged at a time


class Kept(ms.KeyedFunction):
    """Counts the rows of a key, keeps the last ones, and forgets a key that asks for it."""

    n = ms.value("long", default=0)
    last = ms.list("long")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        for row in rows:
            self.n += 1
            self.last.append(row.v)
            if row.v < 0:
                self.n = 0
                self.last.clear()
        yield key, self.n, list(self.last)


class KeptAgain(Kept):
    """The same, by another name."""


def build(flow: ms.Flow, rows: ms.Stream) -> None:
    kept = rows.key_by("k").process("kept", Kept(), schema="k string, n long, last array<long>", order_by="v")
    kept.sink("out", OUT)
    rows.key_by("k").aggregate("sums", total=ms.sum("v"), n=ms.count()).sink("sums_out", SUMS)


OUT, SUMS = ms.sinks.memory(), ms.sinks.memory()


def fed(epoch: int) -> list[tuple[str, int]]:
    return [(f"key-{i * 7 % 11}", i if i % 13 else -1) for i in range(epoch * 20, epoch * 20 + 20)]


def expected(epochs: int) -> tuple[dict[str, tuple[int, list[int]]], dict[str, tuple[int, int]]]:
    """What keys have at the end, by plain Python."""
    kept: dict[str, tuple[int, list[int]]] = {}
    sums: dict[str, tuple[int, int]] = {}
    for key, v in (row for epoch in range(epochs) for row in sorted(fed(epoch), key=lambda row: row[1])):
        n, last = kept.get(key, (0, []))
        kept[key] = (n + 1, [*last, v]) if v >= 0 else (0, [])
        total, count = sums.get(key, (0, 0))
        sums[key] = total + v, count + 1
    return kept, sums


def newest(sink: Any) -> dict[str, Any]:
    return {row[0]: tuple(row[1:]) for row in sink.rows()}


def files(checkpoint: str) -> int:
    return sum(1 for path in Path(checkpoint, "state").rglob("*.arrow"))


def test_a_job_gives_the_same_in_runs_as_in_lmdb_also_started_again(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=2, **RUNS).await_termination()
    job = workload.start(spark, root, **RUNS)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed


def test_runs_are_merged_and_deleted_while_a_job_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    options = {**RUNS, "checkpoint": checkpoint, "groups": 4, "keep_epochs": 2}
    with Live(spark, build, options=options, rows="k string, v long") as live:
        for epoch in range(EPOCHS):
            live.feed("rows", fed(epoch))
            if epoch == 4:
                live.modify(ms.rescale("sums", slots=1), ms.rescale("kept", slots=4))
            if epoch == 8:
                live.modify(ms.replace("kept", KeptAgain()))
        kept, sums = expected(EPOCHS)
        assert newest(OUT) == {key: (n, last) for key, (n, last) in kept.items()}
        assert newest(SUMS) == sums
        state = Journal(Storage(checkpoint)).newest_commit()
        assert state is not None
        runs = {id: len(each.runs or ()) for id, each in state.operators.items()}
        assert all(0 < count < 2 * EPOCHS for count in runs.values()), runs
        assert all(dict(run.groups) for each in state.operators.values() for run in each.runs or ())
        assert files(checkpoint) < 4 * EPOCHS, "runs that no kept record names are deleted"


@pytest.mark.parametrize(("before", "after"), [("lmdb", "runs"), ("runs", "lmdb")])
def test_state_goes_through_a_savepoint_into_another_store(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, Counter[str]], before: str, after: str
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    job = workload.start(spark, first, epochs=2, store=before)
    job.await_termination()
    saved = job.savepoint(f"{first}/saved")
    moved = workload.flow(spark, second, input=f"{first}/input")  # the offsets name its files by their paths
    job = moved.start(
        f"{second}/checkpoint",
        savepoint=saved,
        trigger=ms.available_now(),
        groups=5,
        clock=ManualClock("2026-01-01T00:00:02", step="1 second"),
        cache=f"{second}/cache",
        store=after,
    )
    job.await_termination()
    found = workload.outcome(job, second)
    tables = [name for name in undisturbed if "/" in name]
    assert {name: found[name] for name in tables} == {name: undisturbed[name] for name in tables}


def test_a_store_of_runs_is_refused_where_it_cannot_be_yet(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"store='runs' reads state where it is stored.*leave it out for s3://bucket"):
        check_where_it_runs(spark, Storage("s3://bucket/checkpoint"), "runs")


def test_the_checkpoint_of_a_store_of_runs_is_refused_with_another_store(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=1, **RUNS).await_termination()
    with pytest.raises(CheckpointError, match="a store of the format 'runs', fixed for its life"):
        workload.start(spark, root, epochs=1)


def test_a_run_that_is_damaged_or_gone_stops_the_job_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=2, **RUNS).await_termination()
    for path in Path(root, "checkpoint", "state").rglob("*.arrow"):
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 1
        path.write_bytes(content)
    job = workload.start(spark, root, **RUNS)
    with pytest.raises(Exception, match=r"the run .* is missing or damaged"):
        job.await_termination()
