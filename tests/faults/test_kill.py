"""The driver is killed with SIGKILL before and after each step of an epoch; a restart leaves no trace of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.checkpoint.journal import Journal
from midstream.checkpoint.storage import Storage
from tests.faults import workload
from tests.faults.killing import killed

# After one step is before the next: these are all the gaps between two durable steps, and the first epoch.
POINTS = [
    ("before", "journal", "0"),
    ("before", "journal", "2"),  # Spark's own commit of epoch 1 is done
    ("after", "journal", "2"),
    ("staged", "rows_out", "2"),  # change logs of one operator are written, one sink is staged
    ("after", "run", "2"),  # all change logs written, all sinks staged
    ("after", "commit", "2"),
    ("before", "publish", "0"),
    ("after", "publish", "2"),  # published, but Spark has not committed
]


def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    for dead, point in zip(killed("tests.faults.workload", tmp_path, POINTS), POINTS, strict=True):
        assert dead.arrived == " ".join(point), "the fault must have fired"
        job = workload.start(spark, dead.root)
        job.await_termination()
        assert workload.outcome(job, dead.root) == undisturbed, point


@pytest.mark.slow
def test_a_killed_driver_loses_and_repeats_nothing_of_state_in_runs(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    points = [(*point, "runs") for point in POINTS]
    for dead, point in zip(killed("tests.faults.workload", tmp_path, points), points, strict=True):
        assert dead.arrived == " ".join(point), "the fault must have fired"
        job = workload.start(spark, dead.root, store="runs")
        job.await_termination()
        assert workload.outcome(job, dead.root) == undisturbed, point


def test_a_driver_killed_while_spark_wrote_its_first_offsets_is_started_again(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, Counter[str]]
) -> None:
    Journal(Storage(str(tmp_path / "checkpoint"))).create("5157c9c1", 16, "mdb")
    offsets = tmp_path / "checkpoint" / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.5157c9c1-efa9-433e-9ca8-9595225e23fd.tmp").write_text("v1\n{")  # renamed to `0` when it is whole
    job = workload.start(spark, str(tmp_path))
    job.await_termination()
    assert workload.outcome(job, str(tmp_path)) == undisturbed
