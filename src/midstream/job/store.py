"""The kind of store of a job: whether it can be had wherever tasks run, and whether the checkpoint is of that kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from midstream.checkpoint.records import Identity
from midstream.checkpoint.storage import Storage
from midstream.errors import CheckpointError, PlanError, StateError
from midstream.state.stores.kinds import BUILT_IN, RUNS, store_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_where_it_runs(spark: SparkSession, checkpoint: Storage, store: str) -> None:
    """Refuse a store that tasks cannot import, or that is not for where the job runs."""
    if store == RUNS and not (checkpoint.is_local and (spark.sparkContext.master or "").startswith("local")):
        raise PlanError(
            f"store={store!r} reads state where it is stored, and is for one host and a checkpoint on its disk yet; "
            f"leave it out for {checkpoint.root} on {spark.sparkContext.master}"
        )
    if store in BUILT_IN:
        return
    tasks = max(spark.sparkContext.defaultParallelism, 1)
    found = spark.range(0, tasks, 1, tasks).mapInArrow(ImportTask(store), ImportTask.SCHEMA).collect()
    for row in found:
        if row.why:
            raise PlanError(f"on an executor {row.why}")


def check_kept(identity: Identity, checkpoint: str, store: str) -> None:
    """Refuse a store that cannot read what the job of a checkpoint has written."""
    format = store_kind(store).format
    if identity.store != format:
        raise CheckpointError(
            f"the job of {checkpoint} keeps its state in a store of the format {identity.store!r}, fixed for its life; "
            f"store={store!r} has the format {format!r}. Start it with the store that it had, write a savepoint, and "
            f"start from that with store={store!r} and a new checkpoint"
        )


@dataclass(frozen=True)
class ImportTask:
    """Says why a store cannot be imported where the task runs."""

    store: str

    SCHEMA = "why string"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over anything."""
        why = ""
        try:
            store_kind(self.store)
        except StateError as error:
            why = str(error)
        yield pa.record_batch([pa.array([why])], names=["why"])
