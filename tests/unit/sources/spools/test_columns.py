"""The columns of a spool: simple DDL as Spark writes it, and nothing that Spark would read otherwise."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import SchemaError
from midstream.sources.spools import columns
from midstream.sources.spools.columns import Column

EVERY = "a boolean, b tinyint, c short, d int, e long, f float, g double, h string, i binary, j date, k timestamp, "
EVERY += "`l m` decimal(10, 2)"


def test_columns_are_written_the_way_spark_reads_them() -> None:
    found = columns.parse(EVERY)
    assert columns.parse(columns.ddl(found)) == found
    assert columns.arrow_schema(found).field("l m").type == pa.decimal128(10, 2)


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a long,",
        "a long b int",
        "a array<int>",
        "a long not null",
        "a decimal(39,1)",
        "a int(3)",
        "a int, A int",
    ],
)
def test_a_schema_that_cannot_be_taken_is_refused(ddl: str) -> None:
    with pytest.raises(SchemaError, match="schema"):
        columns.parse(ddl)


@pytest.mark.parametrize(
    ("written", "type", "arrow"),
    [
        ("boolean", "boolean", pa.bool_()),
        ("byte", "tinyint", pa.int8()),
        ("TINYINT", "tinyint", pa.int8()),
        ("short", "smallint", pa.int16()),
        ("integer", "int", pa.int32()),
        ("Long", "bigint", pa.int64()),
        ("real", "float", pa.float32()),
        ("double", "double", pa.float64()),
        ("string", "string", pa.string()),
        ("binary", "binary", pa.binary()),
        ("date", "date", pa.date32()),
        ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
        ("decimal", "decimal(10,0)", pa.decimal128(10, 0)),
        ("dec(5)", "decimal(5,0)", pa.decimal128(5, 0)),
        ("numeric( 38 , 38 )", "decimal(38,38)", pa.decimal128(38, 38)),
    ],
)
def test_a_type_has_one_name_and_the_arrow_type_that_spark_has_for_it(written: str, type: str, arrow: pa.DataType):
    for text in (f"a {written}", f"  a   {written}  ", f"a: {written}"):
        assert columns.parse(text) == (Column("a", type),)
    assert columns.arrow_schema(columns.parse(f"a {written}")) == pa.schema([("a", arrow)])


NAMES = st.lists(st.text("aB_9 `.,:;()ä", min_size=1, max_size=5), min_size=1, max_size=4, unique_by=str.lower)


@given(NAMES)
def test_a_name_is_read_as_it_was_written_whatever_is_in_it(names: list[str]):
    wanted = tuple(Column(name, "bigint") for name in names)
    assert columns.parse(columns.ddl(wanted)) == wanted
    assert columns.arrow_schema(wanted).names == names


@pytest.mark.parametrize(
    ("ddl", "complaint"),
    [
        ("a long, b frobs", "has the type 'frobs', which a spool cannot take; it takes boolean, tinyint"),
        ("a long(3)", "has the type 'long', which a spool cannot take"),
        ("a decimal(0,0)", "at most 38 digits"),
        ("a decimal(5,6)", "at most 38 digits, scale included"),
        ("a long, b, c int", "cannot be read at 'b, c int'"),
        ("`a` long, b long, A int, B int", "has a, b twice; give each column its own name"),
        ("`` long", "cannot be read"),
    ],
)
def test_a_refusal_says_where_and_what(ddl: str, complaint: str):
    with pytest.raises(SchemaError, match=complaint):
        columns.parse(ddl)
