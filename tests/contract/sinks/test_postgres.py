"""What the PostgreSQL sink promises beyond the contract that all sinks share."""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle
import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from midstream import sinks
from midstream.errors import SinkError

if TYPE_CHECKING:
    from tests.contract.conftest import Engine

Start = Callable[..., "Engine"]


@pytest.fixture
def psql(postgres: str) -> Callable[[str], list[tuple[Any, ...]]]:
    def run(query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


Psql = Callable[[str], list[tuple[Any, ...]]]


def test_a_table_is_made_with_a_counterpart_for_each_type(
    start: Start, spark: SparkSession, postgres: str, psql: Psql, table: str
) -> None:
    columns = {  # {Spark expression: (PostgreSQL type, value)}
        "true": ("boolean", True),
        "1Y": ("smallint", 1),
        "1S": ("smallint", 1),
        "1": ("integer", 1),
        "1L": ("bigint", 1),
        "1.5F": ("real", 1.5),
        "double('nan')": ("double precision", "nan"),
        "1.50BD": ("numeric", "1.50"),
        "'a'": ("text", "a"),
        "null": ("text", None),
        "X'00FF'": ("bytea", b"\x00\xff"),
        "date'2024-02-29'": ("date", dt.date(2024, 2, 29)),
        "timestamp'2024-01-01 00:00:00.000001Z'": (
            "timestamp with time zone",
            dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.timezone.utc),
        ),
        "timestamp_ntz'2024-01-01 12:00:00'": ("timestamp without time zone", dt.datetime(2024, 1, 1, 12)),
        "interval '-1 02:03:04.000005' day to second": (
            "interval",
            -dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5),
        ),
        "array(timestamp'2024-01-01 00:00:00Z', null)": (
            "ARRAY",
            [dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), None],
        ),
        "array(X'5C22', X'')": ("ARRAY", [b'\\"', b""]),
        "array(1.5D, double('-infinity'))": ("ARRAY", [1.5, float("-inf")]),
        "array(array(1), array(2, 3))": ("jsonb", [[1], [2, 3]]),
        "named_struct('a', 1, 'b', null, 'c', array(named_struct('d', 'é')))": (
            "jsonb",
            {"a": 1, "b": None, "c": [{"d": "é"}]},
        ),
        "map(1, 'x', 2, null)": ("jsonb", {"1": "x", "2": None}),
        """parse_json('{"a": [1]}')""": ("jsonb", {"a": [1]}),
    }
    names = [f"Column {i}" for i in range(len(columns))]
    df = spark.range(1).selectExpr(*(f"{each} AS `{name}`" for each, name in zip(columns, names, strict=True)))
    engine = start(sinks.postgres(postgres, table))
    engine.publish(engine.sink.stage(df, engine.staging(0)))
    made = psql(f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}'")
    assert dict(made) == {name: kind for name, (kind, _) in zip(names, columns.values(), strict=True)}
    (row,) = psql(f"SELECT * FROM {table}")
    plain = [str(value) if str(value) in ("nan", "1.50") else value for value in row]
    assert plain == [value for _, value in columns.values()]


def test_year_month_intervals_are_intervals(
    start: Start, spark: SparkSession, postgres: str, psql: Psql, table: str
) -> None:
    engine = start(sinks.postgres(postgres, table))
    df = spark.sql("SELECT interval '-1-2' year to month AS i, array(interval '1-0' year to month) AS l")
    engine.publish(engine.sink.stage(df, engine.staging(0)))
    assert psql(f"SELECT i::text, l::text FROM {table}") == [("-1 years -2 mons", '{"1 year"}')]


def test_a_table_with_other_types_and_more_columns_is_used(start: Start, postgres: str, psql: Psql, table: str) -> None:
    psql(f"CREATE TABLE {table} (id numeric, key uuid, made timestamptz DEFAULT now(), doc jsonb)")
    engine = start(sinks.postgres(postgres, table, create=False))
    key = str(uuid.uuid4())
    engine.publish(engine.stage(0, [(1, key, '{"a": 1}')], "id long, key string, doc string"))
    assert psql(f"SELECT id, key::text, made IS NOT NULL, doc FROM {table}") == [(1, key, True, {"a": 1})]


def test_rows_that_do_not_fit_are_refused_before_the_commit(
    start: Start, postgres: str, psql: Psql, table: str
) -> None:
    psql(f"CREATE TABLE {table} (id bigint, flag boolean)")
    engine = start(sinks.postgres(postgres, table))
    with pytest.raises(SinkError, match=rf"no column 'more'.*ALTER TABLE \"{table}\" ADD COLUMN \"more\" bigint\[\]"):
        engine.stage(0, [(1, [2])], "id long, more array<long>")
    with pytest.raises(SinkError, match='column "flag" is of type boolean but expression is of type double'):
        engine.stage(0, [(1, 2.0)], "id long, flag double")
    engine.publish(engine.stage(0, [(1, True)], "id long, flag boolean"))


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("'a\0b'", False),
        ("cast(X'FF' AS string)", False),
        ("array('a', null, 'b\0')", False),
        ("named_struct('a', map('k', array('b\0')))", False),
        ("date'0001-01-01' - interval '1' day", False),
        ("timestamp_micros(9223372036854775807)", False),
        (r"named_struct('a', '\\u0000')", True),
        ("array('a', null)", True),
    ],
)
def test_values_that_cannot_be_stored_are_refused_before_the_commit(
    start: Start, spark: SparkSession, postgres: str, psql: Psql, table: str, expression: str, fits: bool
) -> None:
    engine = start(sinks.postgres(postgres, table))
    df = spark.range(3).selectExpr("id", f"if(id = 1, {expression}, null) AS text")
    if fits:
        engine.publish(engine.sink.stage(df, engine.staging(0)))
        assert psql(f"SELECT count(*), count(text) FROM {table}") == [(3, 1)]
    else:
        with pytest.raises(PySparkException, match=r"column 'text' holds a value that PostgreSQL cannot store"):
            engine.sink.stage(df, engine.staging(0))


def test_a_failed_publish_leaves_neither_rows_nor_epoch(start: Start, postgres: str, psql: Psql, table: str) -> None:
    psql(f"CREATE TABLE {table} (id bigint CHECK (id < 50), text text)")
    engine = start(sinks.postgres(postgres, table))
    staged = engine.stage(0, [(id, "a") for id in range(100)])
    with pytest.raises(SinkError, match=rf"cannot publish epoch 0: table {table}: .*violates check.*nothing is lost"):
        engine.publish(staged)
    assert psql(f"SELECT count(*) FROM {table}") == [(0,)]
    assert psql(f"SELECT * FROM midstream_epochs WHERE job = '{engine.job}'") == []
    psql(f"ALTER TABLE {table} DROP CONSTRAINT {table}_id_check")
    engine.publish(staged)
    assert psql(f"SELECT count(*) FROM {table}") == [(100,)]
    assert psql(f"SELECT sink, epoch FROM midstream_epochs WHERE job = '{engine.job}'") == [("out", 0)]


def test_upsert_replaces_rows_and_the_last_of_a_key_counts(
    start: Start, spark: SparkSession, postgres: str, psql: Psql, table: str
) -> None:
    engine = start(sinks.postgres(postgres, table, upsert=["id"]))
    engine.publish(engine.stage(0, [(1, "a"), (2, "a")]))
    newer = spark.range(100).repartition(1).selectExpr("2 + id % 2 AS id", "cast(id AS string) AS text")
    staged = engine.sink.stage(newer.sortWithinPartitions("text"), engine.staging(1))
    for _ in range(2):
        engine.publish(staged)
    assert psql(f"SELECT * FROM {table} ORDER BY id") == [(1, "a"), (2, "98"), (3, "99")]
    with pytest.raises(PySparkException, match="null key"):
        engine.stage(2, [(None, "a")])
    with pytest.raises(SinkError, match="the upsert key 'id' is not among the columns text"):
        engine.stage(2, [("a",)], "text string")


def test_upsert_of_keys_alone_keeps_what_is_there(start: Start, postgres: str, psql: Psql, table: str) -> None:
    engine = start(sinks.postgres(postgres, table, upsert=["id"]))
    for epoch in range(2):
        engine.publish(engine.stage(epoch, [(1,), (1 + epoch,)], "id long"))
    assert psql(f"SELECT * FROM {table} ORDER BY id") == [(1,), (2,)]


def test_upsert_needs_a_unique_key(start: Start, postgres: str, psql: Psql, table: str) -> None:
    psql(f"CREATE TABLE {table} (id bigint, text text)")
    engine = start(sinks.postgres(postgres, table, upsert=["id"]))
    with pytest.raises(SinkError, match="no unique or exclusion constraint"):
        engine.stage(0, [(1, "a")])


def test_names_are_quoted_and_schemas_respected(start: Start, postgres: str, psql: Psql, table: str) -> None:
    psql(f'CREATE SCHEMA "S {table}"')
    engine = start(sinks.postgres(postgres, f'S {table}.Select "x"'))
    engine.publish(engine.stage(0, [(1, 2)], '`a "b"` long, `order` long'))
    assert psql(f'SELECT "order", "a ""b""" FROM "S {table}"."Select ""x"""') == [(2, 1)]
    assert psql(f'SELECT epoch FROM "S {table}".midstream_epochs') == [(0,)]


def test_a_missing_table_is_refused_where_it_may_not_be_made(start: Start, postgres: str, table: str) -> None:
    with pytest.raises(SinkError, match=rf"table {table} does not exist in .*create=True"):
        start(sinks.postgres(postgres, table, create=False))


def test_a_server_that_is_not_there_is_reported(start: Start) -> None:
    with pytest.raises(SinkError, match=r"sink 'out' cannot be opened: PostgreSQL at .*Check that the server is up"):
        start(sinks.postgres("host=127.0.0.1 port=1 dbname=d", "t"))


@pytest.mark.parametrize("conninfo", ["postgresql://u:hush@h/d?sslpassword=hush", "host=h user=u password=hush"])
def test_the_password_is_neither_shown_nor_pickled(conninfo: str) -> None:
    sink = sinks.postgres(conninfo, "t")
    again = cloudpickle.loads(cloudpickle.dumps(sink))
    assert sink.describe() == again.describe()
    assert "hush" not in sink.describe() + repr(vars(sink))
    assert b"hush" not in cloudpickle.dumps(sink)
    assert sink._secrets["password"].value == "hush"


def test_a_broken_connection_string_is_not_repeated() -> None:
    with pytest.raises(SinkError, match="cannot be understood") as caught:
        sinks.postgres("host=h password='hush", "t")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("arguments", [{"table": "a.b.c"}, {"table": ""}, {"table": "t", "upsert": "id"}])
def test_what_cannot_work_is_refused_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(SinkError, match="must be"):
        sinks.postgres("dbname=d", **arguments)


def test_the_table_of_epochs_is_altered_by_its_owner_only_and_once(
    start: Start, spark: SparkSession, postgres: str, psql: Psql, table: str
) -> None:
    """A table that an older version made lacks the commit; whoever only writes may not add it, and need not."""
    schema, role = f"s{uuid.uuid4().hex[:8]}", f"r{uuid.uuid4().hex[:8]}"
    psql(f"CREATE SCHEMA {schema}")
    psql(f"CREATE TABLE {schema}.midstream_epochs (job text, sink text, epoch bigint, PRIMARY KEY (job, sink))")
    psql(f"CREATE TABLE {schema}.{table} (a bigint)")
    sinks.postgres(postgres, table=f"{schema}.{table}").open(spark, "out", "job")
    columns = psql(f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{schema}'")
    assert ("commit",) in columns
    psql(f"CREATE ROLE {role} LOGIN")
    psql(f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    address = psycopg.conninfo.make_conninfo(postgres, user=role)
    sinks.postgres(address, table=f"{schema}.{table}").open(spark, "out", "job")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SinkError, match=r"pip install 'midstream\[postgres\]'"):
        sinks.postgres("dbname=d", "t")
