"""From bytes to rows: every type is read, and what does not fit is refused one by one, with a reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.errors import SchemaError
from midstream.ingest import records
from midstream.sources.spools import columns
from tests.support.spools import N, rows

EVERY = "a boolean, b tinyint, c short, d int, e long, f float, g double, h string, i binary, j date, k timestamp, "
EVERY += "`l m` decimal(10, 2)"


JSON = (
    b'{"a":true,"b":-128,"c":1,"d":2,"e":3,"f":1.5,"g":2.5,"h":"\xc3\xa4","i":"aGk=","j":"2026-01-02",'
    b'"k":"2026-01-02T03:04:05+01:00","l m":1.25,"other":[{}]}'
)
CSV = 'true,-128,1,2,3,1.5,2.5,ä,aGk=,2026-01-02,2026-01-02 02:04:05,"1.25"'.encode()


@pytest.mark.parametrize(("name", "line", "nothing"), [("json", JSON, b"{}"), ("csv", CSV, b"," * 11)])
def test_every_type_is_read(name: str, line: bytes, nothing: bytes) -> None:
    found = columns.parse(EVERY)
    format = records.of(name, found, 1000)
    parsed = format.parse(format.split(line + b"\r\n\n" + nothing))
    assert parsed.refused == []
    values = [str(value) for value in parsed.rows.to_pylist()[0].values()]
    assert values == ["True", "-128", "1", "2", "3", "1.5", "2.5", "ä", "b'hi'", "2026-01-02",
                      "2026-01-02 02:04:05+00:00", "1.25"]  # fmt: skip
    assert set(parsed.rows.to_pylist()[1].values()) <= {None, ""}


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("json", b"null", "Expected `object`, got `null`"),
        ("json", b'{"a":1}{"a":2}', "trailing characters"),
        ("json", b'{"a":9223372036854775808}', "int"),
        ("json", b'{"d":1.234}', "Decimal"),
        ("json", b'{"d":1e999999999}', "out of range for decimal128(5, 2)"),
        ("json", b'{"t":"9999-12-31T23:59:59-23:59"}', "after 9999"),
        ("json", b'{"s":"\xff"}', "not UTF-8"),
        ("json", b'{"x":' + b"[" * 90_000, ""),
        ("json", b'{"s":"' + b"x" * 100_000 + b'"}', "longer than 100000 bytes"),
        ("json", b" " * 100_001, "longer than 100000 bytes"),
        ("csv", b"1,x", "2 values instead of 4"),
        ("csv", b"x,x,1,", "Expected `int | null`"),
        ("csv", b'1,"x,1', "unexpected end of data"),
        ("csv", b"1,\xff,1,", "not UTF-8"),
    ],
)
def test_a_bad_line_is_refused_and_its_neighbours_are_taken(name: str, line: bytes, reason: str) -> None:
    good = {"json": b'{"a":7,"s":"y"}', "csv": b"7,y,,"}[name]
    format = records.of(name, columns.parse("a long, s string, d decimal(5,2), t timestamp"), 100_000)
    parsed = format.parse(format.split(b"\n".join([good, line, good, line])))
    assert [row["a"] for row in parsed.rows.to_pylist()] == [7, 7]
    assert [refused.place for refused in parsed.refused] == [1, 3]
    assert reason in parsed.refused[0].reason


def test_without_a_schema_a_line_is_kept_as_it_is() -> None:
    format = records.of("json", records.VALUE, 100)
    assert format.parse(format.split(b' {"a": 1}\r\nx y \n')).rows.to_pylist() == [
        {"value": ' {"a": 1}'},
        {"value": "x y "},
    ]


def test_an_arrow_stream_is_taken_whole_or_not_at_all() -> None:
    format = records.of("arrow", N, 100)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows().schema) as out:
        out.write_table(rows(1, 2))
    stream = sink.getvalue().to_pybytes()
    assert format.parse(format.split(stream)).rows.equals(rows(1, 2))
    for torn in (b"", b"junk", stream[:-30], stream[:40], stream.replace(b"n\0\0\0", b"\xff\0\0\0")):
        with pytest.raises(SchemaError, match="Arrow stream"):
            format.split(torn)
    with pytest.raises(SchemaError, match="of n int64 instead of m int64"):
        records.of("arrow", columns.parse("m long"), 100).split(stream)
