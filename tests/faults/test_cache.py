"""Whatever happens to the local cache, a worker or a task, and whatever Spark makes of the plan: nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream import testing
from midstream.state.location import boot_id
from midstream.testing import batches
from tests.faults import workload

SHORT = 2  # epochs before the fault


def stores(root: str) -> list[Path]:
    found = [path for path in Path(root, "cache").rglob("*.mdb") if path.is_file()]
    assert found, "there must be a cache to disturb"
    return found


def delete(root: str, spark: SparkSession) -> None:
    assert stores(root)
    shutil.rmtree(f"{root}/cache")


def truncate(root: str, spark: SparkSession) -> None:
    for path in stores(root):
        os.truncate(path, path.stat().st_size // 2 if path.stat().st_size > 4096 else 100)


def scribble(root: str, spark: SparkSession) -> None:
    for path in stores(root):
        path.write_bytes(b"not a database" * 1000)


def another_boot(root: str, spark: SparkSession) -> None:
    job = next(Path(root, "cache").iterdir())
    os.rename(job / boot_id(), job / "11111111-2222-3333-4444-555555555555")
    scribble(root, spark)  # what another boot left must not even be looked at


def another_job(root: str, spark: SparkSession) -> None:
    other = f"{root}/other"
    ended = workload.start(spark, other)
    ended.await_termination()
    mine = next(Path(root, "cache").iterdir())
    theirs = next(Path(other, "cache").iterdir())
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine, symlinks=True)


def another_history(root: str, spark: SparkSession) -> None:
    """Go on with other rows, then put the checkpoint and the sinks back: epoch numbers agree, commits do not."""
    for name in ("checkpoint", "rows", "sums", "input"):
        shutil.copytree(f"{root}/{name}", f"{root}/kept/{name}")
    real = workload.rows
    workload.rows = lambda *told: [(k, n, v + 1000, d, t) for k, n, v, d, t in real(*told)]  # type: ignore[assignment]
    try:
        ended = workload.start(spark, root, epochs=SHORT + 1)
        ended.await_termination()
    finally:
        workload.rows = real  # type: ignore[assignment]
    for name in ("checkpoint", "rows", "sums", "input"):
        shutil.rmtree(f"{root}/{name}")
        shutil.copytree(f"{root}/kept/{name}", f"{root}/{name}")


def several_epochs_behind(root: str, spark: SparkSession) -> None:
    shutil.copytree(f"{root}/cache", f"{root}/kept/cache", symlinks=True)
    ended = workload.start(spark, root, epochs=SHORT + 1)
    ended.await_termination()
    shutil.rmtree(f"{root}/cache")
    shutil.copytree(f"{root}/kept/cache", f"{root}/cache", symlinks=True)


FAULTS = [delete, truncate, scribble, another_boot, another_job, another_history, several_epochs_behind]


CASES = [(fault, False) for fault in FAULTS] + [
    (delete, True),
    (truncate, True),
]  # in place: where all is restored


@pytest.mark.parametrize(("fault", "in_place"), CASES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_disturbed_cache_is_restored(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: dict[str, Counter[str]],
    fault: Callable[[str, SparkSession], None],
    in_place: bool,
) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=SHORT).await_termination()
    fault(root, spark)
    job = workload.start(spark, root, restore_in_place=in_place)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed


class KillsItsWorker(ms.KeyedFunction):
    """Kills the Python worker it runs in, once."""

    total = ms.value("long", default=0)

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += sum(row.v for row in rows)
        if ctx.epoch == 1 and os.path.exists(self.marker):
            os.unlink(self.marker)
            os.kill(os.getpid(), signal.SIGKILL)
        yield key, self.total


def test_a_worker_killed_in_the_middle_of_a_task_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    marker = str(tmp_path / "kill")

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        made = rows.key_by("k").process("sums", KillsItsWorker(marker), schema="k long, total long")
        made.sink("out", ms.sinks.memory())

    inputs = batches(workload.SCHEMA, *(workload.rows(epoch) for epoch in range(3)))
    plain = testing.run(spark, build, rows=inputs)
    Path(marker).touch()
    killed = testing.run(spark, build, rows=inputs)
    assert not os.path.exists(marker), "the worker was not killed"
    assert Counter(killed.rows("out")) == Counter(plain.rows("out"))


def always_false(df: DataFrame) -> DataFrame:
    return df.where("1 = 0")


def empty_join_side(df: DataFrame) -> DataFrame:
    return df.join(df.sparkSession.createDataFrame([], "k long"), "k")


def ordered(df: DataFrame) -> DataFrame:
    return df.repartitionByRange(3, "total").orderBy("total")


def limited(df: DataFrame) -> DataFrame:
    return df.limit(1)


@pytest.mark.parametrize("after", [always_false, empty_join_side, ordered, limited], ids=lambda f: f.__name__)
def test_state_is_whole_where_spark_prunes_samples_or_repeats_the_operator(
    spark: SparkSession, after: Callable[[DataFrame], DataFrame]
) -> None:
    """Spark may leave a stage out, run a part of it, or run it twice; the state must not notice."""

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        sums = rows.key_by("k").aggregate("sums", total=ms.sum("v"), slots=3)
        sums.transform("after", after, per_epoch=True).sink("out", ms.sinks.memory())

    epochs = [workload.rows(epoch) for epoch in range(3)]
    result = testing.run(spark, build, rows=batches(workload.SCHEMA, *epochs), state=True)
    expected: Counter[int] = Counter()
    for epoch in epochs:
        for k, _, v, _, _ in epoch:
            expected[k] += v
    assert {row.k: row.total for row in result.state["sums"]["record"]} == dict(expected)
    emitted = len(result.rows("out"))
    assert emitted == {always_false: 0, empty_join_side: 0, ordered: 3 * workload.KEYS, limited: 3}[after]
