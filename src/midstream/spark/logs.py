"""What Spark logs, held back for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def quiet_streaming(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging, as an error, that an epoch which came in during a stop was turned away."""
    logs = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    name = "org.apache.spark.sql.execution.streaming"
    context = logs.LogManager.getContext(False)
    known = context.getConfiguration().getLoggers().containsKey(name)
    before = logs.LogManager.getLogger(name).getLevel()
    logs.core.config.Configurator.setLevel(name, logs.Level.OFF)
    try:
        yield
    finally:
        if known:
            logs.core.config.Configurator.setLevel(name, before)
        else:
            context.getConfiguration().removeLogger(name)
            context.updateLoggers()
