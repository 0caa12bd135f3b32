"""A PostgreSQL table: rows and epoch in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.sinks import spooled
from midstream.sinks.contract import Secret, Staging, call, refuse_other_history
from midstream.sinks.postgres_types import TYPE, postgres_type, staged_column
from midstream.sinks.spooled import SpooledSink

if TYPE_CHECKING:
    from midstream.sinks.postgres_table import Table

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


class Postgres(SpooledSink):
    """Inserts each committed epoch into a table, in one transaction that also notes the epoch's number.

    The number is in the table `midstream_epochs`, beside the target, one row per job and sink, with the
    id of its commit; so an epoch that is there already is skipped. With `upsert=[key columns]` a row replaces
    the one with the same key, and of several rows with one key in an epoch the last counts. A missing table
    is created, unless `create=False`: atomic types and arrays of them as their PostgreSQL counterparts,
    structs, maps, variants and nested arrays as `jsonb`. An existing table may have other types that
    PostgreSQL can read the values as (`uuid` for a string), and more columns. A password is not kept in the
    checkpoint: after a restart without the script it comes from PGPASSWORD, a password file or a service file.

    Promised: each epoch once, visible as a whole; rows that do not fit the table's columns, text with U+0000
    or broken UTF-8, dates outside the years 1 to 9999 and null keys fail before the epoch commits. Not
    promised: the same for what only the table knows (ranges of narrower types, constraints, triggers); there
    the job stops, and goes on with the same rows when the table is changed.
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
        with self._transaction(f"sink {sink!r} cannot be opened") as table:
            if not self._create and not table.exists():
                raise SinkError(
                    f"sink {sink!r}: table {'.'.join(self._name)} does not exist in {self._conninfo!r}. "
                    "Create it, or use postgres(..., create=True)"
                )
            table.open_epochs()

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
        with self._transaction(f"sink {staged.sink!r} cannot publish epoch {staged.epoch}") as table:
            if not table.claim(staged):
                found = table.published(staged.sink, staged.job)
                assert found is not None
                refuse_other_history(staged.sink, f"table {'.'.join(self._name)}", found, staged)
                return
            spooled.refuse_lost(staged)
            columns = {field.name: str(field.metadata[TYPE]) for field in spooled.schema(staged)}
            if self._create:
                table.create(columns)
            table.insert(staged, columns)

    def published(self, sink: str, job: str) -> Delivered | None:
        """Return the newest epoch that the database has."""
        with self._transaction(f"sink {sink!r} cannot say what it has") as table:
            return table.published(sink, job)

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

    @contextmanager
    def _transaction(self, problem: str) -> Iterator[Table]:
        """Return the table, in a transaction that commits at the end, and rolls back on any error."""
        psycopg = _psycopg()
        from midstream.sinks.postgres_table import Table

        secrets = {key: secret.value for key, secret in self._secrets.items() if secret}
        try:
            with psycopg.connect(self._conninfo, client_encoding="utf8", **secrets) as connection:
                yield Table(connection, self._name, self._upsert)
        except psycopg.OperationalError as error:
            raise SinkError(
                f"{problem}: PostgreSQL at {self._conninfo!r}: {_line(error)}. Check that the server is up "
                "and the connection string is right (a password is not kept in the checkpoint: provide it in "
                "the script, in PGPASSWORD or in a password file), and start the job again: nothing is lost"
            ) from error
        except psycopg.Error as error:
            raise SinkError(
                f"{problem}: table {'.'.join(self._name)}: {_line(error)}. Change the table, or the rows in "
                "a transform, and start the job again: nothing is lost"
            ) from error

    def _check(self, schema: T.StructType, sink: str) -> None:
        """Refuse rows that do not fit the table."""
        absent = [key for key in self._upsert if key not in schema.names]
        if absent:
            raise SinkError(
                f"sink {sink!r}: the upsert key {absent[0]!r} is not among the columns "
                f"{', '.join(schema.names)}. Name columns of the rows in postgres(upsert=[...])"
            )
        columns = {field.name: postgres_type(field.dataType) for field in schema}
        with self._transaction(f"sink {sink!r} does not fit") as table:
            if self._create and not table.exists():
                return
            if missing := table.missing(columns):
                raise SinkError(
                    f"sink {sink!r}: table {'.'.join(self._name)} has no column {next(iter(missing))!r}. Add it "
                    f"({table.addition(missing)}), or drop it from the rows in a transform"
                )
            table.plan_insertion(columns)

    def _complaint(self, column: str, sink: str) -> str:
        return (
            f"sink {sink!r}: column {column!r} holds a value that PostgreSQL cannot store: U+0000 or broken "
            "UTF-8 in a text, a date outside the years 1 to 9999, or a null key. Clean it in a transform"
        )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _hidden(error: BaseException, conninfo: str) -> str:
    """Return an error's text, unless it repeats the connection string, which may hold a password."""
    text = _line(error)
    return "libpq does not know its form" if any(word in text for word in conninfo.split()) else text


def _psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError:
        raise SinkError("the PostgreSQL sink needs psycopg: pip install 'midstream[postgres]'") from None
    return psycopg
