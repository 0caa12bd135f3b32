"""What an exception out of Spark means to the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.errors import CheckpointError, JobError, SinkError
from midstream.spark.exceptions import (
    DiskFullError,
    UserCodeError,
    explained,
    with_free_space,
)

FROM_A_WORKER = """An error occurred while calling o42.save.
: org.apache.spark.SparkException: Job aborted.
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/job/flow.py", line 7, in process
    raise ValueError("no thirteens")
ValueError: no thirteens

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_an_exception_of_the_users_code_is_shown_with_its_traceback() -> None:
    found = explained(Exception(FROM_A_WORKER), " (operator 'sums')")
    assert isinstance(found, UserCodeError)
    assert str(found).startswith("the job's own code failed: ValueError: no thirteens (operator 'sums')\nTraceback")


def test_an_error_of_ours_out_of_a_worker_is_that_error() -> None:
    found = explained(Exception("Traceback …\nmidstream.errors.SinkError: the table is gone\n\tat java"))
    assert (type(found), str(found)) == (SinkError, "the table is gone")


def test_what_is_ours_already_and_what_is_no_exception_stays() -> None:
    for error in (CheckpointError("x"), KeyboardInterrupt()):
        assert explained(error) is error


def test_what_nobody_knows_is_said_as_it_is() -> None:
    found = explained(Exception("something of Spark"))
    assert (type(found), str(found)) == (JobError, "the epoch failed: something of Spark")


@pytest.mark.parametrize("sign", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_named(tmp_path: Path, sign: str) -> None:
    error = Exception(f"Job aborted.\nCaused by: java.io.IOException: {sign}: /data/out\n\tat java")
    found = with_free_space(
        explained(error), {"checkpoint": str(tmp_path), "cache": "/no/such/directory", "Spark": "s3://elsewhere"}
    )
    assert isinstance(found, DiskFullError)
    assert f"{sign}: /data/out" in str(found)
    assert f"Free on this host: checkpoint ({tmp_path})" in str(found)
    assert "/no/such/directory" not in str(found)
    other = JobError("x")
    assert with_free_space(other, {}) is other
