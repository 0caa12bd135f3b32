"""The Spark session of the tests: local, its tasks may fail once, and it knows no time zone but UTC."""

from __future__ import annotations

import json
import os

from pyspark.sql import SparkSession

from midstream.spark.session import QUICK_LOGS

# Hadoop starts a process for each file that it writes: this is the fastest way to.
_JAVA = "-Djdk.lang.Process.launchMechanism=VFORK"


SETTINGS = "MIDSTREAM_TEST_SETTINGS"  # of Spark, as JSON, for tests that need others and their drivers


def local() -> SparkSession:
    """Make the session, or give the one that this process has."""
    return (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config(map=QUICK_LOGS)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _JAVA)
        .config(map=json.loads(os.environ.get(SETTINGS, "{}")))
        .getOrCreate()
    )
