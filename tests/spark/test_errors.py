"""What goes wrong is said clearly, ends the job cleanly, and after its cause is removed the same checkpoint goes on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream import testing
from midstream.checkpoint.seals import seal
from midstream.events import Progress
from midstream.testing import batches
from tests.faults import workload
from tests.support.slow import slow

SCHEMA = "k long, v long"
ROWS = batches(SCHEMA, [(1, 10), (2, 20)])


class Yields(ms.KeyedFunction):
    """Yields what it is told, and sets its state to what it is told."""

    total = ms.value("long", default=0)

    def __init__(self, row: Any, state: Any = 1) -> None:
        self.row, self.state = row, state

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total = self.state
        yield self.row


def one_process(function: ms.KeyedFunction, schema: str = "k long, n long") -> Callable[..., None]:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").process("sums", function, schema=schema).sink("out", ms.sinks.memory())

    return build


def test_an_unknown_key_column_is_refused_with_the_columns_there_are(spark: SparkSession) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("auction").aggregate("sums", n=ms.count()).sink("out", ms.sinks.memory())

    with pytest.raises(ms.PlanError, match="no column 'auction'; the stream has k, v"):
        testing.run(spark, build, rows=ROWS)


@pytest.mark.parametrize("type", ["array<long>", "struct<a: long>", "map<string, long>"])
def test_a_nested_key_is_refused(spark: SparkSession, type: str) -> None:
    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        nested = rows.transform("nest", lambda df: df.selectExpr(f"cast(null as {type}) as k"))
        nested.key_by("k").aggregate("sums", n=ms.count()).sink("out", ms.sinks.memory())

    with pytest.raises(ms.PlanError, match=r"column 'k' .* cannot be a key"):
        testing.run(spark, build, rows=ROWS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "many"), r"'sums' yielded 'many' \(str\) for column 'n' of type int64"),
        slow((1,), r"'sums' yielded \(1,\), but its schema has 2 columns \(k, n\)"),
        slow((1, 2**70), r"for column 'n' of type int64"),
    ],
)
def test_output_that_does_not_fit_the_schema_names_operator_column_and_value(
    spark: SparkSession, row: Any, message: str
) -> None:
    with pytest.raises(ms.SchemaError, match=message):
        testing.run(spark, one_process(Yields(row)), rows=ROWS)


@pytest.mark.parametrize("value", ["text", slow(1.5), slow(2**64)])
def test_state_that_does_not_fit_its_type_names_operator_state_and_value(spark: SparkSession, value: Any) -> None:
    with pytest.raises(ms.StateError, match=r"state 'total' of operator 'sums' is declared as int64; .* does not fit"):
        testing.run(spark, one_process(Yields((1, 1), value)), rows=ROWS)


def test_an_error_in_user_code_is_shown_with_its_traceback(spark: SparkSession) -> None:
    class Divides(ms.KeyedFunction):
        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            yield key, 1 // 0

    with pytest.raises(ms.JobError, match=r"ZeroDivisionError(.|\n)*in process"):
        testing.run(spark, one_process(Divides()), rows=ROWS)


class Fails(ms.KeyedFunction):
    """Fails in some of its calls for one key, which it counts in a file."""

    def __init__(self, error: Exception, times: range, calls: Path) -> None:
        self.error, self.times, self.calls = error, (times.start, times.stop), str(calls)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        if key == 1:
            with open(self.calls, "a+") as file:
                file.write(".")
                if self.times[0] <= file.tell() < self.times[1]:
                    raise self.error
        yield key, len(rows)


@pytest.mark.parametrize(
    ("error", "calls"),
    [(ValueError("no"), 3), (ConnectionError("no"), 2)],  # runs of the epoch, tries of the task that Spark may make
)
def test_who_tries_again_depends_on_the_error(
    spark: SparkSession, tmp_path: Path, error: Exception, calls: int
) -> None:
    with pytest.raises(ms.JobError, match=f"own code failed: {type(error).__name__}: no"):
        testing.run(spark, one_process(Fails(error, range(1, 99), tmp_path / "calls")), rows=ROWS)
    assert (tmp_path / "calls").stat().st_size == calls


def test_an_error_that_does_not_come_again_costs_a_run(spark: SparkSession, tmp_path: Path) -> None:
    found = testing.run(spark, one_process(Fails(ValueError("no"), range(1, 3), tmp_path / "calls")), rows=ROWS)
    assert [rerun.epoch for rerun in found.reruns()] == [0, 0]
    assert Counter(map(tuple, found.rows("out"))) == Counter([(1, 1), (2, 1)])


def test_an_error_in_a_slot_that_is_run_for_another_one_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing reads the counts, so they are run on their own, and the function before them a second time: it fails."""

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        function = Fails(ValueError("no"), range(2, 3), tmp_path / "calls")
        sums = rows.key_by("k").process("sums", function, schema="k long, n long")
        sums.key_by("k").aggregate("counts", n=ms.count())

    found = testing.run(spark, build, rows=ROWS, state=True)
    assert len(found.reruns()) == 1
    assert "own code failed: ValueError: no (operator 'sums')" in found.reruns()[0].reason
    assert (tmp_path / "calls").stat().st_size == 4, "two runs of the epoch, and in each two of the function"
    assert found.state["counts"]


def test_a_function_that_cannot_be_pickled_is_refused_before_anything_runs(spark: SparkSession) -> None:
    lock = threading.Lock()

    class Holds(ms.KeyedFunction):
        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            with lock:
                yield key, 1

    with pytest.raises(ms.PlanError, match=r"operator 'sums' cannot be sent to the executors: .*lock"):
        testing.run(spark, one_process(Holds()), rows=ROWS)


@pytest.mark.parametrize(
    ("transform", "node"),
    [
        (lambda df: df.groupBy("k").count(), "Aggregate"),
        (lambda df: df.dropDuplicates(["k"]), "Deduplicate"),
        (lambda df: df.distinct(), "Deduplicate"),
        (lambda df: df.orderBy("k"), "Sort"),
        (lambda df: df.limit(3), "LocalLimit"),
        (lambda df: df.selectExpr("k", "row_number() over (partition by k order by v) as n"), "Window"),
    ],
    ids=["groupBy", "dropDuplicates", "distinct", "orderBy", "limit", "window"],
)
def test_a_transform_that_would_silently_become_per_epoch_is_refused(
    spark: SparkSession, transform: Callable[[DataFrame], DataFrame], node: str
) -> None:
    def build(flow: ms.Flow, rows: ms.Stream, per_epoch: bool = False) -> None:
        rows.transform("shape", transform, per_epoch=per_epoch).sink("out", ms.sinks.memory())

    with pytest.raises(ms.PlanError, match=rf"transform 'shape' holds \w*{node}\w*.*per_epoch=True"):
        testing.run(spark, build, rows=ROWS)
    assert testing.run(spark, lambda flow, rows: build(flow, rows, per_epoch=True), rows=ROWS).rows("out")


def test_an_aggregate_of_a_joined_table_is_no_aggregate_of_the_stream(spark: SparkSession) -> None:
    names = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], "k long, name string")

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        sizes = names.groupBy("k").count()
        rows.transform("join", lambda df: df.join(sizes, "k")).sink("out", ms.sinks.memory())

    assert Counter(testing.run(spark, build, rows=ROWS).rows("out")) == Counter([(1, 10, 2), (2, 20, 1)])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda df: df.dropDuplicates(["value"]), "Deduplicate, .*use deduplicate"),
        (lambda df: df.groupBy("value").count(), "Aggregate, .*use key_by.*aggregate"),
        (lambda df: df.limit(3), "Limit, .*use key_by.*process"),
        (lambda df: df.alias("a").join(df.alias("b"), "value"), "Join, .*make two sources"),
        (
            lambda df: df.groupBy("value").applyInPandasWithState(
                lambda key, rows, state: rows, "value long", "n long", "append", "NoTimeout"
            ),
            "FlatMapGroupsInPandasWithState, .*use key_by.*process",
        ),
    ],
    ids=["duplicates", "aggregate", "limit", "join", "state"],
)
def test_a_source_that_keeps_state_of_sparks_own_is_refused(
    spark: SparkSession, change: Callable[[DataFrame], DataFrame], complaint: str
) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ms.PlanError, match=f"source 'rows' holds .*{complaint}"):
        ms.Flow("stateful").source("rows", change(stream))


def test_a_source_may_be_joined_with_an_aggregated_table(spark: SparkSession) -> None:
    table = spark.range(3).groupBy("id").count().withColumnRenamed("id", "value")
    ms.Flow("joined").source("rows", spark.readStream.format("rate").load().join(table, "value"))


def test_a_second_driver_on_a_live_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def flow() -> ms.Flow:
        built = ms.Flow("live")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        built.source("rows", rows).key_by("value").aggregate("n", n=ms.count())
        return built

    job = flow().start(tmp_path / "checkpoint", cache=tmp_path / "cache")
    with pytest.raises(ms.CheckpointError, match=r"is in use by process \d+"):
        flow().start(tmp_path / "checkpoint", cache=tmp_path / "cache")
    job.stop()
    flow().start(tmp_path / "checkpoint", cache=tmp_path / "cache").stop()


def test_a_checkpoint_of_an_unknown_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=1).await_termination()
    identity = tmp_path / "checkpoint" / "midstream.json"
    record = json.loads(identity.read_text())["record"]
    identity.write_bytes(seal({**record, "format": 99}))
    with pytest.raises(ms.CheckpointError, match=r"has format 99, this Midstream reads format 5.*savepoint"):
        workload.start(spark, root)
    identity.write_text(json.dumps({**record, "format": 3}))
    with pytest.raises(ms.CheckpointError, match=r"has format 3, this Midstream reads format 5.*savepoint"):
        workload.start(spark, root)


def test_a_job_may_change_between_available_now_and_every(spark: SparkSession, tmp_path: Path) -> None:
    def start(trigger: ms.Trigger, **options: Any) -> ms.Job:
        flow = ms.Flow("switch")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        flow.source("rows", rows).key_by("value").aggregate("n", n=ms.count())
        return flow.start(tmp_path / "checkpoint", trigger=trigger, cache=tmp_path / "cache", **options)

    beaten = threading.Event()
    job = start(ms.every(0), listener=lambda event: beaten.set() if isinstance(event, Progress) else None)
    assert beaten.wait(60)
    job.stop()
    start(ms.available_now()).await_termination(60)


def test_lost_commit_records_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=2).await_termination()
    subprocess.run(["rm", "-r", f"{root}/checkpoint/commits"], check=True)
    job = workload.start(spark, root)
    with pytest.raises(ms.CheckpointError, match="goes on at epoch 2, but there is no commit record at all"):
        job.await_termination()


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("what", "how"),
    [("log", "cut"), slow("log", "gone"), ("snapshot", "flipped"), slow("snapshot", "cut"), slow("snapshot", "gone")],
)
def test_a_damaged_file_is_named_and_after_its_return_the_job_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    what: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, Counter[str]],
) -> None:
    root = str(tmp_path)
    if what == "snapshot":
        monkeypatch.setattr("midstream.checkpoint.retention.MAX_AGE", 1)
    workload.start(spark, root, epochs=3).await_termination()
    monkeypatch.undo()
    subprocess.run(["rm", "-r", f"{root}/cache"], check=True)
    files = sorted(p for p in Path(root, "checkpoint", "state", "sums").glob(f"*/{what}/**/*") if p.is_file())
    assert files
    kept = {path: path.read_bytes() for path in files}
    for path in files:
        damage(path, how)
    job = workload.start(spark, root)
    with pytest.raises(
        ms.StateError, match=r"the (change log|snapshot) .*/state/sums/.* is missing or damaged"
    ) as caught:
        job.await_termination()
    assert any(path.name in str(caught.value) for path in files)
    assert not job.is_active
    for path, content in kept.items():
        path.write_bytes(content)
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed


def test_a_damaged_commit_record_is_named(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=2).await_termination()
    record = sorted((tmp_path / "checkpoint" / "commits").iterdir())[-1]
    content = record.read_bytes()
    record.write_bytes(content[:50])
    with pytest.raises(ms.CheckpointError, match=f"{record.name} is damaged"):
        workload.start(spark, root)
    record.write_bytes(content)
    workload.start(spark, root).await_termination()


def test_changed_offsets_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    workload.start(spark, root, epochs=2).await_termination()
    (tmp_path / "checkpoint" / "spark" / "commits" / "1").unlink()
    log = tmp_path / "checkpoint" / "spark" / "offsets" / "1"
    assert '{"logOffset":1}' in log.read_text()
    (log.parent / ".1.crc").unlink()  # with it Spark itself would refuse the file
    log.write_text(log.read_text().replace('{"logOffset":1}', '{"logOffset":0}'))
    job = workload.start(spark, root)
    with pytest.raises(ms.CheckpointError, match="epoch 1 was committed with the source offsets"):
        job.await_termination()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 3 MB, mounted for the test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip() or 'no mount command'}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_a_full_disk_ends_the_job_and_with_space_it_goes_on(
    spark: SparkSession, tmp_path: Path, small_disk: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    root = str(tmp_path)
    (small_disk / "checkpoint").mkdir()
    os.symlink(small_disk / "checkpoint", tmp_path / "checkpoint")
    workload.start(spark, root, epochs=1).await_termination()
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(ms.MidstreamError, match="disk is full"):
        workload.start(spark, root).await_termination()
    ballast.unlink()
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed
