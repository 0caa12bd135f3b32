"""What all tests share: one Spark session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support import object_store as objects
from tests.support.session import local


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a local session whose tasks may fail, and which knows no time zone but UTC."""
    session = local()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def object_store() -> Iterator[objects.Gate]:
    """Give an S3 server of our own, stopped at the end; the environment leads there."""
    with objects.serving() as gate:
        yield gate


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """Give what the job of the fault tests leaves when nothing goes wrong."""
    from tests.faults import workload

    root = str(tmp_path_factory.mktemp("undisturbed"))
    job = workload.start(spark, root)
    job.await_termination()
    found = workload.outcome(job, root)
    assert all(found.values()), "the workload must leave rows everywhere"
    return found
