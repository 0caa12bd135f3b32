"""Spark's SQL, as far as our texts use it, run by DuckDB: what a text means, without a session.

Only what is written differently is translated; what is not known fails. Times are in UTC, and have no zone.
"""

from __future__ import annotations

import atexit
import re
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

_MACROS = """
create macro pmod(a, n) as ((a % n) + n) % n;
create macro get(list, number) as list_extract(list, number + 1);
create macro unix_micros(time) as epoch_us(time);
create macro timestamp_micros(number) as make_timestamp(cast(number as bigint));
create macro how_many(is_so) as count(case when is_so then 1 end);
create macro sequence(first, last, step) as generate_series(first, last, step);
create macro explode(list) as unnest(list);
create macro shiftrightunsigned(n, bits) as
    ((cast(n as hugeint) + 18446744073709551616) % 18446744073709551616) // (cast(1 as hugeint) << bits);
create macro xxhash64(a) as cast(cast(hash(a) as hugeint) - 9223372036854775808 as bigint);
"""
_WRITTEN = (  # in Spark, in DuckDB
    (r"`((?:[^`]|``)*)`", lambda found: '"' + found[1].replace("``", "`").replace('"', '""') + '"'),
    (r"\b(\d+)L\b", r"\1"),
    (r"\b(\d+(?:\.\d+)?(?:e-?\d+)?)D\b", r"cast(\1 as double)"),
    (r"\bcast\(array\(\) as array<long>\)", "cast([] as bigint[])"),
    (r"\barray\(", "list_value("),
    (r"\bcount_if\(", "how_many("),  # in DuckDB it is null of no rows
    (r"\bexcept \(", "exclude ("),
    (r"\bexplode\(concat\((.*)\)\) as", r"unnest(flatten(list_value(\1))) as"),
    (r"\bstruct\(", "row("),
    (r"\bstruct<([^<>]*)>", lambda found: f"struct({found[1].replace(':', ' ')})"),
    (r"\bfrom range\((\d+), (\d+), 1, 1\)", r"from (select unnest(range(\1, \2)) as id)"),
)


def run(query: str, **tables: pa.Table) -> list[dict[str, Any]]:
    """Run a query of Spark over tables, and return its rows."""
    connection = _connection()
    for name, table in tables.items():
        connection.register(name, table)
    found: list[dict[str, Any]] = connection.sql(in_duckdb(query)).to_arrow_table().to_pylist()
    for name in tables:
        connection.unregister(name)
    return found


def column(expression: str, **columns: pa.Array) -> list[Any]:
    """Work an expression out for each row of some columns."""
    return [row["found"] for row in run(f"select {expression} as found from given", given=pa.table(columns))]


def in_duckdb(query: str) -> str:
    """Write a query as DuckDB reads it."""
    for pattern, replacement in _WRITTEN:
        query = re.sub(pattern, replacement, query)  # type: ignore[arg-type]
    return query


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(_MACROS)
    atexit.register(_connection.cache_clear)  # DuckDB complains of what is left when Python ends
    return connection
