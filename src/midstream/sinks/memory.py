"""Rows in the memory of the driver process: for tests, notebooks and first steps."""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T
from pyspark.sql.conversion import ArrowTableToRowsConversion

from midstream.checkpoint.records import Delivered, Staged
from midstream.sinks import spooled
from midstream.sinks.contract import call, refuse_other_history
from midstream.sinks.spooled import SpooledSink


class _Kept(NamedTuple):
    schema: T.StructType
    table: pa.Table
    commit: str


class _Store:
    """The rows of one job, shared by all sinks of the name in this process."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.lock = threading.Lock()
        self.job = ""
        self.kept: dict[tuple[int, str], _Kept] = {}  # {(epoch, sink id): rows}


_stores: weakref.WeakValueDictionary[str, _Store] = weakref.WeakValueDictionary()


class Memory(SpooledSink):
    """Keeps the rows of each committed epoch in the driver process.

    Sinks of the same name, and copies that were pickled and loaded again, share their rows within a process.
    A job that opens the sink for the first time finds it empty; the same job, started again, adds to what is
    there.

    Promised: each epoch once, whatever is repeated. Not promised: rows of epochs that another process
    published, and memory for an endless stream.
    """

    guarantee = "each committed epoch exactly once, for as long as the driver process lives"

    def __init__(self, name: str | None = None) -> None:
        """Make an empty sink, or another view of the one with this name."""
        self._attach(name, f"name:{name}" if name is not None else uuid.uuid4().hex)

    def open(self, spark: SparkSession, sink: str, job: str) -> None:
        """Forget the rows of any other job."""
        with self._store.lock:
            if self._store.job != job:
                self._store.job = job
                self._store.kept = {}

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Keep the epoch's rows, unless they are there."""
        if not staged.files:
            return
        known = self._store.kept.get((staged.epoch, staged.sink))
        if known is not None:
            found = Delivered(staged.epoch, known.commit)
            refuse_other_history(staged.sink, self.describe(), found, staged)
            return
        spooled.refuse_lost(staged)
        kept = _Kept(spooled.schema(staged), spooled.read(staged).read_all(), staged.commit)
        with self._store.lock:
            self._store.kept[staged.epoch, staged.sink] = kept

    def describe(self) -> str:
        """Name the sink."""
        return call("memory", *[] if self._name is None else [self._name])

    def rows(self, epoch: int | None = None) -> list[Row]:
        """Return the rows, of all epochs in order or of one, as `DataFrame.collect()` would."""
        rows: list[Row] = []
        for kept in self._select(epoch):
            rows += ArrowTableToRowsConversion.convert(kept.table, kept.schema)
        return rows

    def table(self, epoch: int | None = None) -> pa.Table:
        """Return the rows, of all epochs in order or of one, as Arrow; columns an epoch lacks are null."""
        tables = [kept.table for kept in self._select(epoch)]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def epochs(self) -> list[int]:
        """List the epochs that have rows."""
        with self._store.lock:
            return sorted({epoch for epoch, _ in self._store.kept})

    def _select(self, epoch: int | None) -> list[_Kept]:
        with self._store.lock:
            return [kept for key, kept in sorted(self._store.kept.items()) if epoch in (None, key[0])]

    def _attach(self, name: str | None, token: str) -> None:
        self._name = name
        self._store = _stores.setdefault(token, _Store(token))

    def __getstate__(self) -> tuple[str | None, str]:
        """Pickle the name, not the rows."""
        return self._name, self._store.token

    def __setstate__(self, state: tuple[str | None, str]) -> None:
        """Share the rows that this process has under the name."""
        self._attach(*state)
