"""Sinks: one function for each; what it guarantees is in its class.

>>> from midstream import sinks
>>> sinks.memory("totals")
memory('totals')
>>> sinks.memory().guarantee
'each committed epoch exactly once, for as long as the driver process lives'
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from midstream.checkpoint.records import Staged
from midstream.sinks.console import Console
from midstream.sinks.contract import Sink, Staging
from midstream.sinks.delta import Delta
from midstream.sinks.files import Files
from midstream.sinks.foreach_batch import BatchFunction, ForeachBatch
from midstream.sinks.memory import Memory
from midstream.sinks.noop import Noop
from midstream.sinks.postgres import Postgres

__all__ = [
    "Sink",
    "Staged",
    "Staging",
    "console",
    "delta",
    "files",
    "foreach_batch",
    "memory",
    "noop",
    "postgres",
]


def memory(name: str | None = None) -> Memory:
    """Keep rows in the driver process: `.rows()`, `.table()`, `.epochs()`. See `Memory`."""
    return Memory(name)


def console(rows: int = 20) -> Console:
    """Print the first rows of each epoch. See `Console`."""
    return Console(rows)


def files(
    path: str | os.PathLike[str],
    format: Literal["parquet", "json", "csv"] = "parquet",
    *,
    partition_by: Sequence[str] = (),
    **options: str | bool | int,
) -> Files:
    """Write files to `path/epoch=<number>/`; `options` are those of Spark's writer. See `Files`."""
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return Files(path, format, partition_by, text)


def foreach_batch(fn: BatchFunction) -> ForeachBatch:
    """Call `fn(df, epoch)` with each committed epoch that has rows. See `ForeachBatch`."""
    return ForeachBatch(fn)


def noop() -> Noop:
    """Compute all rows and drop them. See `Noop`."""
    return Noop()


def delta(
    table: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] = (),
    merge_schema: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Delta:
    """Append to a Delta table at a path or URI; needs `midstream[delta]`. See `Delta`.

    `merge_schema=True` lets an epoch add columns; `partition_by` matters when the table is created.
    """
    return Delta(table, partition_by, merge_schema, storage_options or {})


def postgres(conninfo: str, table: str, *, upsert: Sequence[str] = (), create: bool = True) -> Postgres:
    """Insert into a PostgreSQL table, `name` or `schema.name`; needs `midstream[postgres]`. See `Postgres`.

    With `upsert`, the key columns, a row replaces the one with the same key.
    """
    return Postgres(conninfo, table, upsert, create)
