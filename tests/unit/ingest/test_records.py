"""Taking records in: what a block of bytes becomes, and what becomes of blocks that are committed together."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.errors import PlanError, SchemaError
from midstream.ingest import records
from midstream.ingest.committer import (
    Block,
    Committer,
    Full,
    Gap,
    Malformed,
    Outcome,
    Stored,
    append_letters,
)
from midstream.ingest.settings import Settings, address, check_exposure
from midstream.sources.spools import columns, segments
from midstream.sources.spools.writer import SpoolWriter

N = columns.parse("n long")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def read(directory: Path) -> list[int]:
    there = segments.listing(str(directory))
    return [n for batch in segments.read(str(directory), 0, there[-1].end) for n in batch.column(0).to_pylist()]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.arrow*"))


# --- group commit ---------------------------------------------------------------------------------------------------


def committed(writer: SpoolWriter, *blocks: Block) -> list[Outcome]:
    """What becomes of blocks that are submitted together."""

    async def run() -> list[Outcome]:
        committer = Committer(writer, records.of("json", N, 100))
        running = asyncio.ensure_future(committer.run())
        outcomes = asyncio.gather(*map(committer.submit, blocks))
        try:
            await asyncio.wait([running, outcomes], return_when=asyncio.FIRST_COMPLETED)
            return outcomes.result() if outcomes.done() else running.result()  # type: ignore[return-value]
        finally:
            outcomes.cancel()
            running.cancel()
            await asyncio.gather(running, outcomes, return_exceptions=True)
            committer.close()

    return asyncio.run(run())


def test_blocks_that_come_together_become_one_segment(tmp_path: Path) -> None:
    one, two, again = b'{"n":1}\n', b'{"n":2}\nnonsense\n', b'{"n":2}\nnonsense\n{"n":3}\n'
    first, second, third, gap = committed(
        SpoolWriter(tmp_path, N), Block(one, "a"), Block(two, "b", "p"), Block(again, "c", "p"), Block(one, "d", "q", 5)
    )
    assert (first, third, gap) == (Stored(1, 0, []), Stored(1, 2, []), Gap(0))
    assert isinstance(second, Stored)
    assert (second.accepted, second.records, len(second.refused)) == (1, 2, 1)
    (segment,) = names(tmp_path)
    assert segment.startswith("000000000000000000-3-0-")
    assert read(tmp_path) == [1, 2, 3]
    assert SpoolWriter(tmp_path, N).producers == {"p": 3}


def test_a_full_disk_pushes_back_and_a_broken_one_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def fsync(file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("midstream.checkpoint.storage.os.fsync", fsync)

    writer = SpoolWriter(tmp_path, N)
    fail(errno.ENOSPC)
    assert committed(writer, Block(b'{"n":1}', "a", "p")) == [Full()]
    assert names(tmp_path) == []
    monkeypatch.undo()
    writer = SpoolWriter(tmp_path, N)
    assert writer.producers == {}
    fail(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        committed(writer, Block(b'{"n":1}', "a"))


def test_what_never_fits_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, N, max_bytes=10_000)
    (outcome,) = committed(writer, Block(b'{"n":1}\n' * 1000, "a"))
    assert isinstance(outcome, Malformed)
    assert "do not fit in a spool of 10000" in outcome.reason


# --- columns, records and addresses ---------------------------------------------------------------------------------

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


def test_a_torn_dead_letter_does_not_spoil_the_next(tmp_path: Path) -> None:
    append_letters(str(tmp_path), [b'{"a":1}\n', b'{"to'])
    append_letters(str(tmp_path), [b'{"b":2}\n'])
    assert (tmp_path / segments.DEAD_LETTERS).read_bytes() == b'{"a":1}\n{"to\n{"b":2}\n'


def test_only_this_machine_can_connect_unless_it_is_asked_for_with_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, False, None)
    for host in ("0.0.0.0", "example.org", "::"):
        with pytest.raises(PlanError, match="--allow-remote"):
            check_exposure(host, False, b"token")
        with pytest.raises(PlanError, match="--token-file"):
            check_exposure(host, True, None)
        check_exposure(host, True, b"token")
    for listen in ("7000", ":7000", "host:", "host:70000", "host:x"):
        with pytest.raises(PlanError, match="HOST:PORT"):
            address(listen)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(PlanError, match="not known"):
        Settings("::1", 0, "xml").check()
    with pytest.raises(PlanError, match="needs a schema"):
        Settings("::1", 0, "arrow").check()
    with pytest.raises(PlanError, match="max-record"):
        Settings("::1", 0, "json", max_record=1 << 20, max_bytes=1 << 20).check()
    assert os.path.isabs(segments.local_directory("x"))
