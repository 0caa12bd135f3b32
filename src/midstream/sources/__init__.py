"""Sources: several streams in one query, the heartbeat that keeps epochs coming, and the spool.

Any streaming DataFrame of Spark is a source. `spool` is for what cannot be read twice: a network connection.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from midstream.durations import Duration, micros
from midstream.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["spool"]


def spool(
    directory: str | os.PathLike[str],
    *,
    max_rows_per_epoch: int | None = None,
    reader: str = "job",
    keep: Duration = "10 minutes",
) -> DataFrame:
    """Read the records that `midstream ingest` keeps in a directory, as a streaming DataFrame.

    Promised: every record in exactly one epoch, the same one after a crash; a record stays on disk until the job has
    committed it and `keep` has passed, so that a savepoint of that age can still be started from.
    Not promised: an order between the rows of an epoch. The directory must be readable wherever tasks run, and
    writable by the driver.

    Args:
        directory: a local directory, made by `midstream ingest --to`.
        max_rows_per_epoch: the most records in an epoch; all there are by default.
        reader: the name of this job in the spool; two jobs that read one spool need two names.
        keep: how long committed records stay.
    """
    from pyspark.sql import SparkSession

    from midstream.sources.spools.reader import FORMAT, SpoolSource
    from midstream.sources.spools.segments import local_directory, read_spec

    path = local_directory(directory)
    read_spec(path)  # fail here, not deep inside an error of Spark
    if max_rows_per_epoch is not None and max_rows_per_epoch < 1:
        raise PlanError(f"max_rows_per_epoch must be 1 or more, not {max_rows_per_epoch}")
    if not re.fullmatch(r"[\w-][\w.-]{0,99}", reader):
        raise PlanError(f"the reader name {reader!r} becomes a file name: use letters, digits, '_', '-' and '.'")
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise PlanError("there is no Spark session yet; make one before ms.sources.spool(...)")
    spark.dataSource.register(SpoolSource)
    options = {
        "directory": path,
        "reader": reader,
        "max_rows": str(max_rows_per_epoch or 0),
        "keep": str(micros(keep) / 1_000_000),
        "tasks": str(spark.sparkContext.defaultParallelism),
    }
    return spark.readStream.format(FORMAT).options(**options).load()
