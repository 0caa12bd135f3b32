"""Records over plain TCP, in the process of the test: each is answered, once it is on disk or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream.ingest import tcp
from midstream.sources.spools import segments
from tests.support.ingesting import rows
from tests.support.serving import Serving, serving

TOKEN = b"0123456789abcdef"
ONE, TWO = b'{"n":1,"s":"x"}\n', b'{"n":2}\n'


def talk(spool: Path, *content: bytes, **options: Any) -> list[str]:
    """What a server answers to what is sent over one connection."""

    async def lines(server: Serving) -> list[str]:
        return await server.lines(*content)

    return serving(spool, lines, **options)


# --- lines ----------------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_in_the_spool(tmp_path: Path) -> None:
    assert talk(tmp_path, ONE, TWO)[-1] == "OK 2"
    assert rows(tmp_path) == [{"n": 1, "s": "x"}, {"n": 2, "s": None}]


@pytest.mark.parametrize(
    ("content", "errors", "done", "taken"),
    [
        (b"", [], None, []),
        (b"\n\r\n  \n", [], "OK 0", []),
        (ONE + b"null\n" + TWO, ["ERR 1 Expected `object`, got `null`"], "OK 3", [1, 2]),
        (ONE + b"z" * 101 + b"\n" + TWO, ["ERR 1 longer than 100 bytes"], "OK 3", [1, 2]),
        (ONE.replace(b"\n", b"\r\n") + b"\n" + TWO, [], "OK 2", [1, 2]),
        (
            ONE + TWO[:-1],
            ["ERR 1 the last line has no newline, so it may be torn and was not taken"],
            "OK 1",
            [1],
        ),
    ],
)
def test_each_record_is_numbered_and_what_is_refused_is_said(
    tmp_path: Path, content: bytes, errors: list[str], done: str | None, taken: list[int]
) -> None:
    said = talk(tmp_path, content, max_record=100)
    assert [line for line in said if not line.startswith("OK")] == errors
    assert [line for line in said if line.startswith("OK")][-1:] == ([done] if done else [])
    assert [row["n"] for row in rows(tmp_path)] == taken


def test_many_lines_at_once_are_taken_in_turns_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "LINES", 7)
    said = talk(tmp_path, *(b'{"n":%d}\n' % n for n in range(40)))
    assert said[-1] == "OK 40"
    assert len(said) >= 6
    assert [row["n"] for row in rows(tmp_path)] == list(range(40))


def test_a_line_that_is_far_too_long_is_refused_from_its_beginning(tmp_path: Path) -> None:
    said = talk(tmp_path, b"y" * 300_000, b"\n", ONE, max_record=100)
    assert said[-1] == "OK 2"
    assert said.count("ERR 0 longer than 100 bytes") == 1
    assert len((tmp_path / segments.DEAD_LETTERS).read_bytes()) < 5_000, "a letter quotes 4096 bytes"


# --- producers ------------------------------------------------------------------------------------------------------


def test_a_producer_is_told_where_to_go_on(tmp_path: Path) -> None:
    assert talk(tmp_path, b"PRODUCER p\n", ONE, b"nonsense\n")[::2] == ["AT 0", "OK 2"]
    assert talk(tmp_path, b"PRODUCER p\r\n", TWO) == ["AT 2", "OK 3"]
    assert talk(tmp_path, b"PRODUCER q\n") == ["AT 0"]
    assert [row["n"] for row in rows(tmp_path)] == [1, 2]


@pytest.mark.parametrize("name", [b"a b", b"", b"x" * 101, b"\xff", b"a/b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: bytes) -> None:
    (said,) = talk(tmp_path, b"PRODUCER " + name + b"\n", ONE)
    assert said.startswith("ERR 0 the name of a producer is 1 to 100 letters")
    assert rows(tmp_path) == []


def test_two_connections_of_one_producer_do_not_store_a_record_twice(tmp_path: Path) -> None:
    async def both(server: Serving) -> tuple[list[str], list[str]]:
        first_reader, first = await server.connect()
        first.write(b"PRODUCER p\n")
        await first_reader.readline()
        other = await server.lines(b"PRODUCER p\n", ONE)  # it was told to begin at 0 too
        first.write(ONE + TWO)
        first.write_eof()
        said = (await first_reader.read()).decode().splitlines()
        first.close()
        return said, other

    said, other = serving(tmp_path, both)
    assert (said[-1], other) == ("OK 2", ["AT 0", "OK 1"])
    assert [row["n"] for row in rows(tmp_path)] == [1, 2]


# --- tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", ["ERR 0 the first line must be AUTH and the token"]),
        (b"AUTH wrong\n", ["ERR 0 wrong token"]),
        (b"AUTH 0123456789abcdef\n", ["OK 1"]),
        (b"AUTH 0123456789abcdef\r\nPRODUCER p\n", ["AT 0", "OK 1"]),
    ],
)
def test_who_has_the_token_may_send(tmp_path: Path, first: bytes, said: list[str]) -> None:
    assert talk(tmp_path, first, ONE, token=TOKEN) == said
    assert len(rows(tmp_path)) == said.count("OK 1")


def test_a_token_that_nobody_asks_for_is_no_record(tmp_path: Path) -> None:
    assert talk(tmp_path, b"AUTH anything\n", ONE) == ["OK 1"]


# --- Arrow ----------------------------------------------------------------------------------------------------------

TABLE = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"]})


def stream(table: pa.Table = TABLE, chunk: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=chunk)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def test_each_message_of_an_arrow_stream_is_answered(tmp_path: Path) -> None:
    assert talk(tmp_path, stream(), format="arrow") == ["OK 2", "OK 3"]
    assert talk(tmp_path, b"PRODUCER p\n", stream(chunk=1), format="arrow") == ["AT 0", "OK 1", "OK 2", "OK 3"]
    assert talk(tmp_path, b"PRODUCER p\n", stream(), format="arrow") == ["AT 3", "OK 5", "OK 6"]
    assert rows(tmp_path) == TABLE.to_pylist() * 3


def test_what_is_torn_is_not_taken_and_what_came_before_is(tmp_path: Path) -> None:
    whole = stream()
    assert talk(tmp_path, whole[:-60], format="arrow") == ["OK 2"]
    assert rows(tmp_path) == TABLE.to_pylist()[:2]


OTHER = pa.table({"m": [1]})
WORDS = pa.table({"n": pa.array([1], pa.int64()), "s": pa.array(["a"]).dictionary_encode()})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk and more of it", "ERR 0 not an Arrow stream"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "ERR 0 not an Arrow stream"),
        (b"\xff\xff\xff\xff\x08\0\0\0" + b"\xff" * 8, "ERR 0 not an Arrow stream"),
        (stream(OTHER), "ERR 0 an Arrow stream of m int64 instead of n int64, s string"),
        (stream(WORDS), "ERR 0 dictionaries are not supported; send plain columns"),
    ],
    ids=["text", "too long", "no flatbuffer", "other columns", "dictionaries"],
)
def test_what_is_no_arrow_stream_of_these_columns_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    assert talk(tmp_path, content, format="arrow") == [said]
    assert rows(tmp_path) == []


def test_a_message_larger_than_a_body_may_be_is_refused(tmp_path: Path) -> None:
    large = pa.table({"n": pa.array(range(10_000), pa.int64()), "s": ["x"] * 10_000})
    said = talk(tmp_path, stream(large, 10_000), format="arrow", max_bytes=1 << 18, max_record=100)
    assert len(said) == 1
    assert said[0].startswith("ERR 0 an Arrow message of ")
