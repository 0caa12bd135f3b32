"""Savepoints: the whole state as Parquet, and a job that starts from it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import events, testing
from midstream.checkpoint.storage import Storage
from midstream.job.savepoint import restore
from midstream.job.savepoint.manifest import read_manifest
from tests.faults import workload
from tests.support.slow import slow


@pytest.mark.parametrize("groups", [slow(16), 5])
def test_a_job_started_from_a_savepoint_goes_on_as_if_nothing_had_happened(
    spark: SparkSession, tmp_path: Path, groups: int
) -> None:
    whole, first, second = (str(tmp_path / name) for name in ("whole", "first", "second"))
    job = workload.start(spark, whole)
    job.await_termination()
    expected = workload.outcome(job, whole)

    job = workload.start(spark, first, epochs=2)
    job.await_termination()
    job.savepoint(f"{first}/saved")
    moved = workload.flow(spark, second, input=f"{first}/input")  # the offsets name its files by their paths
    clock = testing.ManualClock("2026-01-01T00:00:02", step="1 second")
    job = moved.start(
        f"{second}/checkpoint",
        savepoint=f"{first}/saved",
        trigger=ms.available_now(),
        groups=groups,
        clock=clock,
        cache=f"{second}/cache",
    )
    job.await_termination()
    found = workload.outcome(job, second)
    assert {name: rows for name, rows in found.items() if "/" in name} == {
        name: rows for name, rows in expected.items() if "/" in name
    }
    before = workload.outcome_of_sinks(first)
    for name in ("rows", "sums"):
        assert before[name] + found[name] == expected[name]


def test_other_tools_read_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    job = workload.start(spark, root)
    job.await_termination()
    job.savepoint(f"{root}/saved")
    found = duckdb.sql(f"select name, k, n, top from '{root}/saved/state/sums/record/*.parquet'").fetchall()
    expected: Counter[tuple[str, int]] = Counter()
    top: dict[tuple[str, int], int] = {}
    for epoch in range(workload.EPOCHS):
        for k, name, v, _, _ in workload.rows(epoch):
            expected[name, k] += 1
            top[name, k] = max(top.get((name, k), v), v)
    assert Counter(found) == Counter((name, k, n, top[name, k]) for (name, k), n in expected.items())


def test_a_savepoint_is_written_while_the_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    import threading

    seen = threading.Event()
    out = ms.sinks.memory()
    flow = ms.Flow("live")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load().selectExpr("value % 7 as k")
    flow.source("rows", rows).key_by("k").aggregate("counts", n=ms.count()).sink("out", out)
    job = flow.start(
        tmp_path / "checkpoint",
        trigger=ms.every(0),
        cache=tmp_path / "cache",
        listener=lambda event: seen.set() if isinstance(event, events.Progress) and event.epoch >= 2 else None,
    )
    with job:
        assert seen.wait(60), job.status
        job.savepoint(tmp_path / "saved")
        assert job.is_active
    manifest = read_manifest(Storage.at(tmp_path / "saved"))
    state = spark.read.parquet(str(tmp_path / "saved" / "state" / "counts" / "record")).collect()
    assert sum(row.n for row in state) == (manifest.epoch + 1) * 100
    latest = {row.k: row.n for epoch in range(manifest.epoch + 1) for row in out.rows(epoch)}
    assert {row.k: row.n for row in state} == latest


def test_what_is_not_a_savepoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = workload.flow(spark, str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ms.CheckpointError, match=r"not a savepoint.*manifest\.json is missing"):
        flow.start(tmp_path / "checkpoint", savepoint=tmp_path / "empty")


def test_no_file_of_a_savepoint_can_be_missing_or_other_without_being_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = str(tmp_path)
    job = workload.start(spark, root, epochs=2)
    job.await_termination()
    saved = Path(job.savepoint(f"{root}/saved"))

    def start() -> None:
        flow = workload.flow(spark, f"{root}/again", input=f"{root}/input")
        flow.start(f"{root}/again/checkpoint", savepoint=saved, trigger=ms.available_now(), cache=f"{root}/again/cache")

    one_of_each = {path.parent: path for path in sorted(saved.rglob("*")) if path.is_file()}
    assert len(one_of_each) > 5, "tables, offsets, commits, sources and the manifest"
    for path in one_of_each.values():
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 4
        for damage in (None, bytes(flipped)):
            path.unlink() if damage is None else path.write_bytes(damage)
            with pytest.raises(ms.CheckpointError, match=r"is damaged|was not finished"):
                start()
            path.write_bytes(content)
    (saved / "state" / "sums" / "record" / "part-of-another.parquet").write_bytes(
        next(iter((saved / "state" / "sums" / "record").glob("*.parquet"))).read_bytes()
    )
    start()  # a file that the manifest does not name is not read


def test_a_savepoint_of_the_older_format_is_read_with_a_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = str(tmp_path)
    job = workload.start(spark, root, epochs=2)
    job.await_termination()
    saved = Path(job.savepoint(f"{root}/saved"))
    manifest = json.loads((saved / "manifest.json").read_text())["record"]
    del manifest["files"]
    (saved / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    flow = workload.flow(spark, f"{root}/again", input=f"{root}/input")
    flow.start(
        f"{root}/again/checkpoint", savepoint=saved, trigger=ms.available_now(), cache=f"{root}/again/cache"
    ).await_termination()
    assert "is of an older format that names no files: it is not verified" in caplog.text


@pytest.mark.parametrize("ends_at", ["copy_offsets", "Commit"])
def test_a_start_from_a_savepoint_that_was_interrupted_is_begun_again_in_the_same_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_at: str
) -> None:
    root = str(tmp_path)
    job = workload.start(spark, root, epochs=2)
    job.await_termination()
    saved = job.savepoint(f"{root}/saved")
    flow = workload.flow(spark, f"{root}/again", input=f"{root}/input")
    place = {"trigger": ms.available_now(), "cache": f"{root}/again/cache"}

    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restore, ends_at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            flow.start(f"{root}/again/checkpoint", savepoint=saved, **place)
    assert list(Path(root, "again", "checkpoint", "state").rglob("*.mdb")), "the state was there already"
    with pytest.raises(ms.CheckpointError, match="a start from a savepoint ended before all of it"):
        flow.start(f"{root}/again/checkpoint", **place)
    job = flow.start(f"{root}/again/checkpoint", savepoint=saved, **place)
    job.await_termination()
    assert not Path(root, "again", "checkpoint", "restoring.json").exists()
    with pytest.raises(ms.CheckpointError, match="holds a job already"):
        flow.start(f"{root}/again/checkpoint", savepoint=saved, **place)


def test_a_checkpoint_whose_plans_are_gone_does_not_take_the_flow_of_the_script_instead(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=1).await_termination()
    shutil.rmtree(f"{root}/checkpoint/plans")
    with pytest.raises(ms.CheckpointError, match="the plans are missing"):
        workload.start(spark, root, epochs=2)
