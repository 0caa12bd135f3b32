"""The driver is killed with SIGKILL before and after each step of an epoch; a restart leaves no trace of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults import workload

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


@pytest.mark.parametrize(("kind", "what", "epoch"), POINTS, ids=[f"{k}-{w}-{e}" for k, w, e in POINTS])
def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: dict[str, Counter[str]],
    kind: str,
    what: str,
    epoch: int,
) -> None:
    root = str(tmp_path)
    command = [sys.executable, "-m", "tests.faults.workload", root, kind, what, str(epoch)]
    repository = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=180, check=False)
    assert os.path.exists(f"{root}/fired"), ended.stderr
    assert ended.returncode == -9, ended.stderr
    job = workload.start(spark, root)
    job.await_termination()
    assert workload.outcome(job, root) == undisturbed
