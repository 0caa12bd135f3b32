"""The driver is killed with SIGKILL before and after each step of an epoch; a restart leaves no trace of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

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
