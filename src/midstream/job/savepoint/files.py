"""The files of a savepoint: what its manifest says of each, and whether they are what was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.checksum import checksum
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SavedFile(msgspec.Struct, frozen=True, array_like=True):
    """What a manifest says of one file."""

    size: int
    checksum: int
    rows: int = 0  # of a table


@dataclass(frozen=True)
class VerifyTask:
    """Reads files, and says what is wrong with them."""

    root: str
    wanted: Mapping[str, SavedFile]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over names of files."""
        for batch in batches:
            names = batch.column(0).to_pylist()
            found = [f"{name} {wrong}" for name in names if (wrong := self._wrong(name))]
            yield pa.record_batch([pa.array(found, pa.string())], names=["wrong"])

    def _wrong(self, name: str) -> str:
        storage, wanted = Storage(self.root), self.wanted[name]
        try:
            content = storage.buffer(name)
        except (FileNotFoundError, OSError):
            return "is missing"
        if (content.size, checksum(content)) != (wanted.size, wanted.checksum):
            return "is not what was written: its checksum does not match"
        if name.endswith(".parquet") and pq.read_metadata(pa.BufferReader(content)).num_rows != wanted.rows:
            return f"has not the {wanted.rows} rows that were written"
        return ""


def verify(spark: SparkSession, source: Storage, wanted: Mapping[str, SavedFile]) -> None:
    """Refuse a savepoint of which a file is missing, or is not what was written; executors read them all."""
    tasks = min(len(wanted), max(spark.sparkContext.defaultParallelism, 1))
    names = spark.createDataFrame([(name,) for name in wanted], "name string").repartition(max(tasks, 1))
    found = names.mapInArrow(VerifyTask(source.root, dict(wanted)), "wrong string").collect()
    if found:
        wrong = sorted(row.wrong for row in found)
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckpointError(
            f"the savepoint {source.root} is damaged: {wrong[0]}{more}. Restore it from a copy, or use another one"
        )
