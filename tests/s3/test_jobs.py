"""Jobs whose checkpoint, sinks and savepoints are on S3."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint.storage import Storage
from midstream.testing import Live
from tests.faults import workload
from tests.spark.test_shadow import Negated, Total
from tests.support.object_store import Gate

pytestmark = pytest.mark.slow


def test_a_job_goes_on_after_a_restart_with_nothing_but_what_is_on_s3(
    spark: SparkSession, root: str, undisturbed: dict[str, Counter[str]]
) -> None:
    workload.start(spark, root, epochs=2).await_termination()
    shutil.rmtree(f"{root}/cache")
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed
    names = Storage.at(f"{workload.durable(root)}/rows").list("")
    assert names == [".midstream", *(f"epoch={epoch}" for epoch in range(workload.EPOCHS))]


def test_credentials_are_nowhere_in_the_checkpoint(spark: SparkSession, root: str) -> None:
    workload.start(spark, root, epochs=1).await_termination()
    checkpoint = Storage.at(f"{workload.durable(root)}/checkpoint")
    fs, path = checkpoint._remote()
    files = [info.path for info in fs.get_file_info(pafs.FileSelector(path, recursive=True)) if info.size]
    assert files
    for file in files:
        assert b"of-nobody" not in fs.open_input_stream(file).read(), file


def test_a_job_starts_from_a_savepoint_on_s3_and_reads_its_snapshots_there(
    spark: SparkSession, bucket: str, object_store: Gate, tmp_path: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
        (place / "durable").write_text(f"{bucket}/{place.name}")
    job = workload.start(spark, str(first), epochs=2)
    job.await_termination()
    saved = job.savepoint(f"{bucket}/saved")
    object_store.seen.clear()
    moved = workload.flow(spark, str(second), input=f"{first}/input")  # the offsets name its files by their paths
    job = moved.start(
        f"{bucket}/second/checkpoint",
        savepoint=saved,
        trigger=ms.available_now(),
        groups=5,
        clock=testing.ManualClock("2026-01-01T00:00:02", step="1 second"),
        cache=f"{second}/cache",
    )
    job.await_termination()
    assert any(seen.method == "GET" and seen.path.endswith(".mdb") for seen in object_store.seen)
    found, before = workload.outcome(job, str(second)), workload.outcome_of_sinks(str(first))
    for name, rows in undisturbed.items():
        assert found[name] + before.get(name, Counter()) == rows, name


def test_a_job_is_changed_and_shadowed_on_s3(spark: SparkSession, bucket: str) -> None:
    totals = ms.sinks.memory()  # its rows wait in the checkpoint between commit and publication

    def build(flow: ms.Flow, a: ms.Stream) -> None:
        a.key_by("k").process("sums", Total(), schema="k long, total long").sink("totals", totals)

    with Live(spark, build, options={"checkpoint": f"{bucket}/checkpoint"}, a="k long, v long") as live:
        live.feed("a", [(1, 10), (2, 20)])
        shadow = live.job.shadow(ms.replace("sums", Negated()))
        live.feed("a", [(1, 1)])
        assert shadow.error == ""
        assert str(shadow.differences["totals"]).splitlines()[0] == "1 rows, 1 missing, 1 extra"
        assert shadow.promote().wait(120).phase is ms.Phase.COMPLETED
        live.feed("a", [(1, 1), (2, 5)])
    assert [tuple(row) for row in totals.rows()][:3] == [(1, 10), (2, 20), (1, 11)]
    assert Counter(tuple(row) for row in totals.rows()[3:]) == Counter([(1, 10), (2, 15)])
    left = Storage.at(f"{bucket}/checkpoint")
    assert [left.list(name) for name in ("shadow", "rehearsal")] == [[], []]
