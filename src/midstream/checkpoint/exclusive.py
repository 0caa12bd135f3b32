"""Creating a file that nobody else has created: what keeps two drivers apart where there is no lock of a process.

pyarrow has no such operation. Spark's own file systems have: HDFS, GCS and Azure as they are, S3 by a conditional
write (`If-None-Match: *`), from Hadoop 3.4.2 on. Of two drivers of one checkpoint, each epoch is committed by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITIONAL = "fs.option.create.conditional.overwrite"  # an option of S3A that others pass over


class Exclusive:
    """Creates files of a storage through Spark.

    Promised: of several that create one path, one succeeds. Not promised: that, on a store which passes over
    `If-None-Match`, or where `fs.s3a.create.conditional.enabled` is off.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        """Find the file system; refuse a storage that Spark cannot reach."""
        self._storage, self._jvm = storage, spark._jvm
        try:
            root = self._path(".")
            self._fs = root.getFileSystem(spark._jsc.hadoopConfiguration())
            self._fs.exists(root)
        except Py4JJavaError as error:
            raise CheckpointError(
                f"Spark cannot reach the checkpoint {storage.root}: {_said(error)}. It needs the store's connector, "
                "its address and credentials; for S3, midstream.spark.session.s3_settings() has what it needs"
            ) from error

    def create(self, path: str, content: bytes) -> None:
        """Write a file whole; refuse if there is one that somebody else has written."""
        try:
            builder = self._fs.createFile(self._path(path)).recursive().overwrite(False).opt(_CONDITIONAL, True)
            out = builder.build()
            out.write(content)
            out.close()
        except Py4JJavaError as error:
            found = self._storage.read(path) if self._storage.exists(path) else None
            if found == content:  # it was written, and only the answer was lost
                return
            where = self._storage.path(path)
            if found is None:
                raise CheckpointError(
                    f"{where} could not be written: {_said(error)}. Start the job again with the same checkpoint when "
                    "the store is back; nothing that was committed is lost"
                ) from error
            raise CheckpointError(
                f"another driver has written {where}: the checkpoint is in use by two. This one stops, and nothing of "
                "the epoch that it ran counts. Let one driver run, or give this job a checkpoint of its own"
            ) from error

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._storage.for_spark(path))  # type: ignore[union-attr]


def _said(error: Py4JJavaError) -> str:
    """Return what Java says, without its trace."""
    return str(error.java_exception).split("\n", 1)[0]
