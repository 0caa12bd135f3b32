"""The slow store of Spark: how it is named and set; that it is slow is seen on a cluster."""

from __future__ import annotations

from pathlib import Path

from midstream.bench.throttled import SCHEME, settings, url


def test_a_session_is_told_where_the_classes_are_and_how_fast_to_read():
    found = settings("/classes", 1_000)
    assert found["spark.driver.extraClassPath"] == found["spark.executor.extraClassPath"] == "/classes"
    assert found["spark.hadoop.fs.throttled.impl"] == "ThrottledFileSystem"
    assert found["spark.hadoop.fs.throttled.bytes.per.second"] == "1000"
    assert all(isinstance(value, str) for value in found.values())


def test_a_path_is_named_from_the_root(tmp_path: Path):
    assert url(str(tmp_path)) == f"{SCHEME}://{tmp_path}"
    assert url("here") == f"{SCHEME}://{Path.cwd() / 'here'}"
