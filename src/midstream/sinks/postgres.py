"""A PostgreSQL table: rows and epoch in one transaction."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.sinks import spooled
from midstream.sinks.contract import (
    Secret,
    Staging,
    call,
    refuse_other_history,
)
from midstream.sinks.postgres_types import TYPE, postgres_type, staged_column
from midstream.sinks.spooled import SpooledSink

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_EPOCHS = "midstream_epochs"  # the table with the last epoch of each (job, sink)
_ROWS, _ORDER = "midstream_rows", "midstream_order"  # temporary table of an upsert; its rows' order
_CSV = pacsv.WriteOptions(include_header=False)  # null is empty, text is quoted: so COPY can tell null from ''


class Postgres(SpooledSink):
    """Inserts each committed epoch into a table, in one transaction that also notes the epoch's number.

    The number stands in the table `midstream_epochs`, beside the target, one row per job and sink, with the
    id of its commit; so an epoch that is there already is skipped. With `upsert=[key columns]` a row replaces
    the one with the same key, and of several rows with one key in an epoch the last counts. A missing table
    is created, unless `create=False`: atomic types and arrays of them as their PostgreSQL counterparts,
    structs, maps, variants and nested arrays as `jsonb`. An existing table may have other types that
    PostgreSQL can read the values as (`uuid` for a string), and more columns. A password is not kept in the
    checkpoint: after a restart without the script it comes from PGPASSWORD, a password file or a service file.

    Promised: each epoch once, visible as a whole; rows that do not fit the table's columns, text with U+0000
    or broken UTF-8, dates outside the years 1 to 9999 and null keys fail before the epoch commits. Not
    promised: the same for what only the table knows (ranges of narrower types, constraints, triggers); there
    the job stops, and goes on from the same rows when the table is changed.
    """

    guarantee = "each committed epoch exactly once, visible as a whole"
    remembers = True

    def __init__(self, conninfo: str, table: str, upsert: Sequence[str], create: bool) -> None:
        """Write to `table`, reached by a libpq connection string or URI."""
        psycopg = _psycopg()
        try:
            parameters: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.Error as error:
            raise SinkError(
                f"the connection string of postgres(..., {table!r}) cannot be understood: "
                f"{_hidden(error, conninfo)}. Write 'host=... dbname=... user=...' or 'postgresql://user@host/database'"
            ) from None
        if isinstance(upsert, str):
            raise SinkError(f"postgres(upsert={upsert!r}) must be a list of key columns: upsert=[{upsert!r}]")
        name = tuple(table.split("."))
        if len(name) > 2 or not all(name):
            raise SinkError(f"postgres(table={table!r}) must be 'name' or 'schema.name'")
        self._secrets = {key: Secret(str(parameters.pop(key))) for key in _SECRETS if key in parameters}
        self._conninfo: str = psycopg.conninfo.make_conninfo("", **parameters)
        self._name = name
        self._upsert = tuple(upsert)
        self._create = create
        self._fitting: T.StructType | None = None  # the schema last found to fit the table

    def open(self, spark: SparkSession, sink: str, job: str) -> None:
        """Connect, and make the table of epochs."""
        with self._transaction(f"sink {sink!r} cannot be opened") as connection:
            if not self._create and not _exists(connection, self._target):
                raise SinkError(
                    f"sink {sink!r}: table {'.'.join(self._name)} does not exist in {self._conninfo!r}. "
                    "Create it, or use postgres(..., create=True)"
                )
            if not _exists(connection, self._epochs):
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('midstream_epochs'))")
                self._execute(
                    connection,
                    "CREATE TABLE IF NOT EXISTS {epochs} "
                    "(job text, sink text, epoch bigint NOT NULL, commit text, PRIMARY KEY (job, sink))",
                )
            elif ("commit",) not in _columns(connection, self._epochs):  # made by an older version
                self._execute(connection, "ALTER TABLE {epochs} ADD COLUMN commit text")

    def prepare(self, df: DataFrame, staging: Staging) -> DataFrame:
        """Shape the rows for COPY, and refuse those that do not fit the table."""
        schema = df.schema
        if self._fitting != schema:
            self._check(schema, staging.sink)
            self._fitting = schema
        return df.select(
            *(
                staged_column(field, self._complaint(field.name, staging.sink), is_key=field.name in self._upsert)
                for field in schema
            )
        )

    def publish(self, staged: Staged, spark: SparkSession) -> None:
        """Insert rows and epoch in one transaction, unless the table has this epoch or a later one."""
        if not staged.files:
            return
        problem = f"sink {staged.sink!r} cannot publish epoch {staged.epoch}"
        with self._transaction(problem) as connection:
            claimed = self._execute(
                connection,
                "INSERT INTO {epochs} AS published (job, sink, epoch, commit) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (job, sink) DO UPDATE SET epoch = EXCLUDED.epoch, commit = EXCLUDED.commit "
                "WHERE published.epoch < EXCLUDED.epoch",
                [staged.job, staged.sink, staged.epoch, staged.commit],
            )
            if claimed == 0:
                found = self._published(connection, staged.sink, staged.job)
                assert found is not None
                refuse_other_history(staged.sink, f"table {'.'.join(self._name)}", found, staged)
                return
            spooled.refuse_lost(staged)
            columns = {field.name: str(field.metadata[TYPE]) for field in spooled.schema(staged)}
            if self._create:
                self._create_table(connection, columns)
            if self._upsert:
                self._replace(connection, staged, columns)
            else:
                self._copy(connection, staged, self._target, columns)

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch that the database has."""
        with self._transaction(f"sink {sink!r} cannot be asked what it has") as connection:
            return self._published(connection, sink, job) if _exists(connection, self._epochs) else None

    def describe(self) -> str:
        """Name server, table and options, without the password."""
        return call(
            "postgres",
            self._conninfo,
            ".".join(self._name),
            upsert=list(self._upsert) or None,
            create=None if self._create else False,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the configuration only."""
        return {**self.__dict__, "_fitting": None}

    @property
    def _target(self) -> Composable:
        from psycopg.sql import Identifier

        return Identifier(*self._name)

    @property
    def _epochs(self) -> Composable:
        from psycopg.sql import Identifier

        return Identifier(*self._name[:-1], _EPOCHS)

    @contextmanager
    def _transaction(self, problem: str) -> Iterator[Connection[Any]]:
        """Return a connection whose transaction commits at the end, and rolls back on any error."""
        psycopg = _psycopg()
        secrets = {key: secret.value for key, secret in self._secrets.items() if secret}
        try:
            with psycopg.connect(self._conninfo, client_encoding="utf8", **secrets) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise SinkError(
                f"{problem}: PostgreSQL at {self._conninfo!r}: {_line(error)}. Check that the server is up "
                "and the connection string is right (a password is not kept in the checkpoint: give it in "
                "the script, in PGPASSWORD or in a password file), and start the job again: nothing is lost"
            ) from error
        except psycopg.Error as error:
            raise SinkError(
                f"{problem}: table {'.'.join(self._name)}: {_line(error)}. Change the table, or the rows in "
                "a transform, and start the job again: nothing is lost"
            ) from error

    def _execute(
        self, connection: Connection[Any], query: str, values: Sequence[object] = (), **parts: Composable
    ) -> int:
        from psycopg.sql import SQL

        statement = SQL(query).format(table=self._target, epochs=self._epochs, **parts)
        return connection.execute(statement, values or None).rowcount

    def _published(self, connection: Connection[Any], sink: str, job: str) -> Delivered | None:
        from psycopg.sql import SQL

        query = SQL("SELECT epoch, commit FROM {} WHERE job = %s AND sink = %s").format(self._epochs)
        found = connection.execute(query, [job, sink]).fetchone()
        return None if found is None else Delivered(found[0], found[1] or "")

    def _check(self, schema: T.StructType, sink: str) -> None:
        """Let PostgreSQL plan the insertion, without rows: it knows best what fits."""
        from psycopg.sql import SQL

        absent = [key for key in self._upsert if key not in schema.names]
        if absent:
            raise SinkError(
                f"sink {sink!r}: the upsert key {absent[0]!r} is not among the columns "
                f"{', '.join(schema.names)}. Name columns of the rows in postgres(upsert=[...])"
            )
        columns = {field.name: postgres_type(field.dataType) for field in schema}
        with self._transaction(f"sink {sink!r} does not fit") as connection:
            if self._create and not _exists(connection, self._target):
                return
            found = {name for (name,) in _columns(connection, self._target)}
            missing = [name for name in columns if name not in found]
            if missing:
                addition = SQL("ALTER TABLE {} ADD COLUMN {}").format(self._target, _definitions(columns, missing))
                raise SinkError(
                    f"sink {sink!r}: table {'.'.join(self._name)} has no column {missing[0]!r}. Add it "
                    f"({addition.as_string(connection)}), or drop it from the rows in a transform"
                )
            # A null of no type fits any column: text is read as whatever the column is.
            nulls = [SQL("NULL" if kind == "text" else f"NULL::{kind}") for kind in columns.values()]
            self._execute(
                connection,
                "EXPLAIN INSERT INTO {table} ({names}) SELECT {nulls} {conflict}",
                names=_names(columns),
                nulls=SQL(", ").join(nulls),
                conflict=self._on_conflict(columns),
            )

    def _create_table(self, connection: Connection[Any], columns: dict[str, str]) -> None:
        from psycopg.sql import SQL

        if _exists(connection, self._target):
            return
        key = SQL(", PRIMARY KEY ({})").format(_names(self._upsert)) if self._upsert else SQL("")
        self._execute(
            connection,
            "CREATE TABLE {table} ({columns}{key})",
            columns=_definitions(columns, columns),
            key=key,
        )

    def _replace(self, connection: Connection[Any], staged: Staged, columns: dict[str, str]) -> None:
        from psycopg.sql import Identifier

        rows, order, names = Identifier(_ROWS), Identifier(_ORDER), _names(columns)
        self._execute(
            connection,
            "CREATE TEMPORARY TABLE {rows} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA",
            rows=rows,
            names=names,
        )
        self._execute(
            connection,
            "ALTER TABLE {rows} ADD COLUMN {order} bigint GENERATED ALWAYS AS IDENTITY",
            rows=rows,
            order=order,
        )
        self._copy(connection, staged, rows, columns)
        self._execute(
            connection,
            "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {rows} "
            "ORDER BY {keys}, {order} DESC {conflict}",
            names=names,
            keys=_names(self._upsert),
            rows=rows,
            order=order,
            conflict=self._on_conflict(columns),
        )

    def _on_conflict(self, columns: dict[str, str]) -> Composable:
        from psycopg.sql import SQL, Identifier

        if not self._upsert:
            return SQL("")
        others = [Identifier(name) for name in columns if name not in self._upsert]
        changes = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        action = SQL("DO UPDATE SET {}").format(changes) if others else SQL("DO NOTHING")
        return SQL("ON CONFLICT ({}) {}").format(_names(self._upsert), action)

    def _copy(self, connection: Connection[Any], staged: Staged, target: Composable, columns: dict[str, str]) -> None:
        from psycopg.sql import SQL

        statement = SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, _names(columns))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in spooled.read(staged):
                copy.write(_csv(batch))

    def _complaint(self, column: str, sink: str) -> str:
        return (
            f"sink {sink!r}: column {column!r} holds a value that PostgreSQL cannot store: U+0000 or broken "
            "UTF-8 in a text, a date outside the years 1 to 9999, or a null key. Clean it in a transform"
        )


def _csv(batch: pa.RecordBatch) -> bytes:
    out = io.BytesIO()
    pacsv.write_csv(batch, out, _CSV)
    return out.getvalue()


def _exists(connection: Connection[Any], table: Composable) -> bool:
    found = connection.execute("SELECT to_regclass(%s)", [table.as_string(connection)]).fetchone()
    return found is not None and found[0] is not None


def _columns(connection: Connection[Any], table: Composable) -> list[tuple[str]]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    return connection.execute(query, [table.as_string(connection)]).fetchall()


def _names(columns: Any) -> Composable:
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(Identifier(name) for name in columns)


def _definitions(columns: dict[str, str], names: Any) -> Composable:
    from psycopg.sql import SQL, Identifier

    parts = [SQL("{} {}").format(Identifier(name), SQL(columns[name])) for name in names]
    return SQL(", ").join(parts)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _hidden(error: BaseException, conninfo: str) -> str:
    """Return an error's text, but not if it repeats the string, which may hold a password."""
    text = _line(error)
    return "it is not of a form that libpq knows" if any(word in text for word in conninfo.split()) else text


def _psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError:
        raise SinkError("the PostgreSQL sink needs psycopg: pip install 'midstream[postgres]'") from None
    return psycopg
