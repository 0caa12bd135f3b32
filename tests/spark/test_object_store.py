"""A session that cannot reach an object store is told so; tests/s3 has those that can."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.errors import CheckpointError
from midstream.spark.session import s3_settings
from tests.faults import workload
from tests.support.object_store import Gate


def test_a_session_without_the_connector_is_refused_before_anything_is_written(
    spark: SparkSession, object_store: Gate, tmp_path: Path
) -> None:
    object_store.make_bucket("no-connector")
    object_store.seen.clear()
    flow = workload.flow(spark, str(tmp_path), epochs=1)
    with pytest.raises(CheckpointError, match=r"Spark cannot reach the checkpoint s3://no-connector/job: .*S3A"):
        flow.start("s3://no-connector/job", trigger=ms.available_now())
    assert not object_store.seen


def test_settings_for_s3_are_those_of_the_environment_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    (connector,) = s3_settings().items()
    assert connector[0] == "spark.jars.packages"
    assert connector[1].startswith("org.apache.hadoop:hadoop-aws:3.")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example:9000")
    monkeypatch.setenv("AWS_REGION", "here")
    assert (
        dict([connector])
        | {
            "spark.hadoop.fs.s3a.endpoint": "https://store.example:9000",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "true",
            "spark.hadoop.fs.s3a.endpoint.region": "here",
        }
        == s3_settings()
    )
