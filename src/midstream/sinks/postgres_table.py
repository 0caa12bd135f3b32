"""The statements of the PostgreSQL sink: on one table and its epochs, in one transaction.

Loaded only with a connection: `psycopg` is an extra.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from psycopg import Connection
from psycopg.sql import SQL, Composable, Identifier

from midstream.checkpoint.records import Delivered, Staged
from midstream.sinks import spooled

_EPOCHS = "midstream_epochs"  # the table with the last epoch of each (job, sink)
_ROWS, _ORDER = Identifier("midstream_rows"), Identifier("midstream_order")  # temporary table of an upsert; its order
_CSV = pacsv.WriteOptions(include_header=False)  # null is empty, text is quoted: so COPY can distinguish null from ''


@dataclass(frozen=True, slots=True)
class Table:
    """A table within a transaction; rows of an `upsert` replace those with the same key."""

    connection: Connection[Any]
    name: tuple[str, ...]  # the schema first, if it has one
    upsert: tuple[str, ...]  # the key columns, none: rows are inserted

    @property
    def _target(self) -> Identifier:
        return Identifier(*self.name)

    @property
    def _epochs(self) -> Identifier:
        return Identifier(*self.name[:-1], _EPOCHS)

    # --- epochs ---

    def open_epochs(self) -> None:
        """Create the table of epochs, if it does not exist."""
        if not self._is_there(self._epochs):
            self.connection.execute("SELECT pg_advisory_xact_lock(hashtext('midstream_epochs'))")
            self._execute(
                "CREATE TABLE IF NOT EXISTS {epochs} "
                "(job text, sink text, epoch bigint NOT NULL, commit text, PRIMARY KEY (job, sink))",
            )
        elif "commit" not in self._columns(self._epochs):  # made by an older version
            self._execute("ALTER TABLE {epochs} ADD COLUMN commit text")

    def claim(self, staged: Staged) -> bool:
        """Note an epoch; false if the table has it, or a later one."""
        claimed = self._execute(
            "INSERT INTO {epochs} AS published (job, sink, epoch, commit) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (job, sink) DO UPDATE SET epoch = EXCLUDED.epoch, commit = EXCLUDED.commit "
            "WHERE published.epoch < EXCLUDED.epoch",
            [staged.job, staged.sink, staged.epoch, staged.commit],
        )
        return claimed > 0

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch that the database has."""
        if not self._is_there(self._epochs):
            return None
        query = SQL("SELECT epoch, commit FROM {} WHERE job = %s AND sink = %s").format(self._epochs)
        found = self.connection.execute(query, [job, sink]).fetchone()
        return None if found is None else Delivered(found[0], found[1] or "")

    # --- the table ---

    def exists(self) -> bool:
        """Whether it is there."""
        return self._is_there(self._target)

    def create(self, columns: dict[str, str]) -> None:
        """Create it, if it does not exist."""
        if self.exists():
            return
        key = SQL(", PRIMARY KEY ({})").format(_names(self.upsert)) if self.upsert else SQL("")
        self._execute("CREATE TABLE {table} ({columns}{key})", columns=_definitions(columns), key=key)

    def missing(self, columns: dict[str, str]) -> dict[str, str]:
        """Return the columns that it does not have."""
        found = self._columns(self._target)
        return {name: kind for name, kind in columns.items() if name not in found}

    def addition(self, columns: dict[str, str]) -> str:
        """Return the statement that adds columns, for people."""
        statement = SQL("ALTER TABLE {} ADD COLUMN {}").format(self._target, _definitions(columns))
        return statement.as_string(self.connection)

    def plan_insertion(self, columns: dict[str, str]) -> None:
        """Let PostgreSQL plan the insertion, without rows: it knows best what fits."""
        # A null of no type fits any column: text is read as whatever the column is.
        nulls = [SQL("NULL" if kind == "text" else f"NULL::{kind}") for kind in columns.values()]
        self._execute(
            "EXPLAIN INSERT INTO {table} ({names}) SELECT {nulls} {conflict}",
            names=_names(columns),
            nulls=SQL(", ").join(nulls),
            conflict=self._on_conflict(columns),
        )

    def insert(self, staged: Staged, columns: dict[str, str]) -> None:
        """Insert rows; those of an upsert replace others, and of several with one key the last counts."""
        if not self.upsert:
            self._copy(staged, self._target, columns)
            return
        names = _names(columns)
        self._execute(
            "CREATE TEMPORARY TABLE {rows} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA",
            rows=_ROWS,
            names=names,
        )
        self._execute(
            "ALTER TABLE {rows} ADD COLUMN {order} bigint GENERATED ALWAYS AS IDENTITY", rows=_ROWS, order=_ORDER
        )
        self._copy(staged, _ROWS, columns)
        self._execute(
            "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {rows} "
            "ORDER BY {keys}, {order} DESC {conflict}",
            names=names,
            keys=_names(self.upsert),
            rows=_ROWS,
            order=_ORDER,
            conflict=self._on_conflict(columns),
        )

    def _on_conflict(self, columns: dict[str, str]) -> Composable:
        if not self.upsert:
            return SQL("")
        others = [Identifier(name) for name in columns if name not in self.upsert]
        changes = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        action = SQL("DO UPDATE SET {}").format(changes) if others else SQL("DO NOTHING")
        return SQL("ON CONFLICT ({}) {}").format(_names(self.upsert), action)

    def _copy(self, staged: Staged, target: Composable, columns: dict[str, str]) -> None:
        statement = SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, _names(columns))
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in spooled.read(staged):
                copy.write(_csv(batch))

    def _execute(self, query: str, values: Sequence[object] = (), **parts: Composable) -> int:
        statement = SQL(query).format(table=self._target, epochs=self._epochs, **parts)
        return self.connection.execute(statement, values or None).rowcount

    def _is_there(self, table: Composable) -> bool:
        found = self.connection.execute("SELECT to_regclass(%s)", [table.as_string(self.connection)]).fetchone()
        return found is not None and found[0] is not None

    def _columns(self, table: Composable) -> set[str]:
        query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        return {name for (name,) in self.connection.execute(query, [table.as_string(self.connection)])}


def _csv(batch: pa.RecordBatch) -> bytes:
    out = io.BytesIO()
    pacsv.write_csv(batch, out, _CSV)
    return out.getvalue()


def _names(columns: Iterable[str]) -> Composable:
    return SQL(", ").join(Identifier(name) for name in columns)


def _definitions(columns: dict[str, str]) -> Composable:
    return SQL(", ").join(SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in columns.items())
