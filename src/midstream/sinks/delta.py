"""A Delta table, without a JVM library: rows and epoch in one Delta transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.sinks import directories, spooled
from midstream.sinks.contract import Staging, call, hide_secrets, refuse_other_history, reveal_secrets
from midstream.sinks.spooled import SpooledSink

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Delta(SpooledSink):
    """Appends each committed epoch to a Delta table, as one Delta commit that carries the epoch's number.

    The number is kept in the table as the application transaction `<job>/<sink>`, and the id of its commit
    as `<job>/<sink>/commit`, with the rows or not at all; so an epoch that is there already is skipped. The
    table is made by the first epoch with rows, all columns nullable; other writers may append to it, compact
    it and vacuum it.

    Promised: each epoch once, visible as a whole. Not promised: that, if someone restores the table to an
    older version or lets `delta.setTransactionRetentionDuration` forget the transaction; on S3 without
    conditional writes, safety among several writers (see the locking providers of `deltalake`).
    """

    guarantee = "each committed epoch exactly once, visible as a whole"
    remembers = True

    def __init__(
        self,
        table: str | os.PathLike[str],
        partition_by: Sequence[str],
        merge_schema: bool,
        storage_options: Mapping[str, str],
    ) -> None:
        """Write to the table at a path or URI."""
        self._table = directories.absolute(table)
        self._partition_by = tuple(partition_by)
        self._merge_schema = merge_schema
        self._storage_options = hide_secrets(storage_options)
        self._fitting: pa.Schema | None = None  # the schema last found to fit the table
        _deltalake()

    def open(self, spark: SparkSession, sink: str, job: str) -> None:
        """Check that the table, if there is one, can be read."""
        self._load(sink)

    def prepare(self, df: DataFrame, staging: Staging) -> DataFrame:
        """Refuse rows that do not fit the table, before they are committed."""
        schema = spooled.arrow_schema(df.schema, staging.sink)
        if self._fitting != schema:
            self._check(schema, staging.sink)
            self._fitting = schema
        return df

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Append the rows, unless the table has this epoch or a later one."""
        if not staged.files:
            return
        table = self._load(staged.sink)
        found = _published(table, staged.sink, staged.job)
        if found is not None and found.epoch >= staged.epoch:
            refuse_other_history(staged.sink, f"the Delta table {self._table}", found, staged)
            return
        spooled.refuse_lost(staged)
        deltalake = _deltalake()
        transactions = [
            deltalake.Transaction(application, number)
            for application, number in zip(
                _applications(staged.sink, staged.job), (staged.epoch, int(staged.commit, 16)), strict=True
            )
        ]
        try:
            deltalake.write_deltalake(
                self._table if table is None else table,
                spooled.read(staged),
                mode="append",
                partition_by=list(self._partition_by) or None,
                schema_mode="merge" if self._merge_schema else None,
                storage_options=reveal_secrets(self._storage_options) or None,
                commit_properties=deltalake.CommitProperties(app_transactions=transactions),
            )
        except SinkError:
            raise
        except Exception as error:  # what fails while the rows are streamed comes back as a bare Exception
            raise SinkError(
                f"sink {staged.sink!r} cannot append epoch {staged.epoch} to {self._table}: "
                f"{_first_line(error)}. The rows are kept in the checkpoint: remove the cause and start the "
                "job again"
            ) from error

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch that the table has."""
        return _published(self._load(sink), sink, job)

    def describe(self) -> str:
        """Name table and options."""
        return call(
            "delta",
            self._table,
            partition_by=self._partition_by,
            merge_schema=self._merge_schema or None,
            storage_options=self._storage_options,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the configuration only."""
        return {**self.__dict__, "_fitting": None}

    def _load(self, sink: str) -> DeltaTable | None:
        deltalake = _deltalake()
        options = reveal_secrets(self._storage_options) or None
        try:
            if not deltalake.DeltaTable.is_deltatable(self._table, options):
                return None
            table: DeltaTable = deltalake.DeltaTable(self._table, storage_options=options)
            return table
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise SinkError(
                f"sink {sink!r} cannot read the Delta table {self._table}: {_first_line(error)}. Check the "
                "address, the rights and the storage options (secrets are not kept in the checkpoint: provide "
                "them in the script or in the environment)"
            ) from error

    def _check(self, schema: pa.Schema, sink: str) -> None:
        deltalake = _deltalake()
        try:
            wanted = _shapes(deltalake.Schema.from_arrow(schema))
        except Exception as error:  # deltalake raises a bare Exception for types that Delta lacks
            raise SinkError(
                f"sink {sink!r} does not fit a Delta table: {_first_line(error)}. Cast it in a transform"
            ) from error
        table = self._load(sink)
        if table is None:
            return
        found = _shapes(table.schema())
        unlike = sorted(
            name
            for name in wanted.keys() | found.keys()
            if (wanted.get(name) != found.get(name))
            and not (self._merge_schema and (name not in wanted or name not in found))
        )
        if unlike:
            name = unlike[0]
            raise SinkError(
                f"sink {sink!r} does not fit the Delta table {self._table}: column {name!r} is "
                f"{wanted.get(name, 'missing')} in the rows and {found.get(name, 'missing')} in the table. "
                "Change it in a transform, use another table, or delta(..., merge_schema=True) to add columns"
            )


def _applications(sink: str, job: str) -> tuple[str, str]:
    """Return the names under which a table keeps the number of the newest epoch, and the id of its commit."""
    return f"{job}/{sink}", f"{job}/{sink}/commit"


def _published(table: DeltaTable | None, sink: str, job: str) -> Delivered | None:
    if table is None:
        return None
    epoch, commit = (table.transaction_version(application) for application in _applications(sink, job))
    return None if epoch is None else Delivered(epoch, "" if commit is None else f"{commit:016x}")


def _shapes(schema: Any) -> dict[str, str]:
    """Return each column's type as text, leaving out what may be null."""
    return {field["name"]: _shape(field["type"]) for field in json.loads(schema.to_json())["fields"]}


def _shape(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_shape(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_shape(kind['keyType'])}, {_shape(kind['valueType'])}>"
    return "struct<" + ", ".join(f"{field['name']}: {_shape(field['type'])}" for field in kind["fields"]) + ">"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise SinkError("the Delta sink needs the package deltalake: pip install 'midstream[delta]'") from None
    return deltalake
