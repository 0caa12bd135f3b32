"""The driver is killed with SIGKILL before and after each step of an epoch; a restart leaves no trace of it."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.faults import workload
from tests.faults.killing import Dead

# After one step is before the next: these are all the gaps between two durable steps, and the first epoch.
POINTS = [
    ("before", "journal", 0),
    ("before", "journal", 2),  # Spark's own commit of epoch 1 is done
    ("after", "journal", 2),
    ("staged", "rows_out", 2),  # change logs of one operator are written, one sink is staged
    ("after", "run", 2),  # all change logs written, all sinks staged
    ("after", "commit", 2),
    ("before", "publish", 0),
    ("after", "publish", 2),  # published, but Spark has not committed
]


@pytest.mark.killed("tests.faults.workload", "kind", "what", "epoch")
@pytest.mark.parametrize(("kind", "what", "epoch"), POINTS, ids=[f"{k}-{w}-{e}" for k, w, e in POINTS])
def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, dead: Dead, undisturbed: dict[str, Counter[str]], kind: str, what: str, epoch: int
) -> None:
    assert os.path.exists(f"{dead.root}/fired"), "the fault must have fired"
    job = workload.start(spark, dead.root)
    job.await_termination()
    assert workload.outcome(job, dead.root) == undisturbed
