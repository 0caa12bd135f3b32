"""A session that reaches S3. Its connector comes from Maven Central: without, these tests are skipped.

A process has one Java, with the classes that it was started with, so these tests run in a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from midstream.spark.session import s3_settings
from tests.support.object_store import Gate
from tests.support.session import SETTINGS, local

# The parts of Amazon's library that are used here: all of it are 690 MB.
_SDK = "2.35.4"
_PARTS = ("s3-transfer-manager", "sts")
_FETCH = [
    sys.executable,
    "-c",
    "from tests.support.session import local; local().stop()",
]  # a failed Java leaves pipes open
_IMPATIENT = {  # a store that is away is given up after seconds
    "spark.hadoop.fs.s3a.attempts.maximum": "4",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    "spark.hadoop.fs.s3a.retry.interval": "50ms",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "3",
    "spark.hadoop.fs.s3a.retry.throttle.interval": "50ms",
    "spark.hadoop.fs.s3a.connection.timeout": "5s",
    "spark.hadoop.fs.s3a.connection.request.timeout": "5s",
}


@pytest.fixture(scope="session")
def spark(object_store: Gate) -> Iterator[SparkSession]:
    """Give a session that reaches S3."""
    if SparkSession.getActiveSession() is not None:
        pytest.skip("this process has a session without the connector: run tests/s3 in one of its own")
    wanted = s3_settings()
    parts = [f"software.amazon.awssdk:{part}:{_SDK}" for part in _PARTS]
    wanted["spark.jars.packages"] = ",".join([wanted["spark.jars.packages"], *parts])
    wanted["spark.jars.excludes"] = "software.amazon.awssdk:bundle"
    os.environ[SETTINGS] = json.dumps(wanted | _IMPATIENT)
    fetched = subprocess.run(_FETCH, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    if fetched.returncode != 0:
        pytest.skip("Spark did not start with the connector of S3, which Maven Central has: is that reachable?")
    session = local()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    del os.environ[SETTINGS]


@pytest.fixture
def bucket(object_store: Gate) -> str:
    """Give a bucket of its own, as a URI."""
    name = f"bucket-{os.urandom(6).hex()}"
    object_store.make_bucket(name)
    return f"s3://{name}"


@pytest.fixture
def root(bucket: str, tmp_path: Path) -> str:
    """Give the directory of a job of `workload` whose durable parts are on S3."""
    (tmp_path / "durable").write_text(bucket)
    return str(tmp_path)
