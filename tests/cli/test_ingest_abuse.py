"""`midstream ingest` and peers that are slow, silent or mean harm: others are served, nothing is taken by mistake."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.ingesting import SCHEMA, Server, record, served

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that would take any line."""
    with served(tmp_path_factory.mktemp("plain") / "spool") as server:
        yield server


def closed(sock: socket.socket) -> bytes:
    """Wait until the server hangs up, and give what it said."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 16):
            said += part
    return said


# --- strict parsing -------------------------------------------------------------------------------------------------

SMUGGLED = HEAD + b"Content-Length: 6\r\n\r\nhidden"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, b"405"),
        (b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, b"405"),
        (HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"501"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"501"),
        (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"501"),
        (HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxXX0\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n" + SMUGGLED, b"400"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 6\r\n\r\nhidden", b"400"),
        (HEAD + b"Content-Length: +6\r\n\r\nhidden", b"400"),
        (HEAD + b"Content-Length: 6\x00\r\n\r\nhidden", b"400"),
        (HEAD + b"Content-Length: 6\r\nOrigin: a\r\nOrigin: b\r\n\r\nhidden", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\nhidden", b"400"),
        (b"POST / HTTP/2.0\r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden", b"505"),
        (b"POST  / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden\n", b"400"),
        (b"POST\t/ HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden\n", b"400"),
        (b"POST / HTTP/1.1 \r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden\n", b"400"),
        (b"POST / HTTP/\r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden\n", b"400"),
        (b"POST /" + b"x" * 600 + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhidden\n", b"405"),
        (b"POST /" + b"x" * 30_000 + b" HTTP/1.1\r\nHost: a\r\n\r\nhidden\n", b"431"),
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_nothing_of_it_is_taken(
    plain: Server, request_: bytes, status: bytes
) -> None:
    before = plain.request("GET", "/")[1]
    with plain.connect() as sock:
        sock.sendall(request_)
        said = closed(sock)
    assert said.startswith(b"HTTP/1.1 " + status)
    assert said.count(b"Content-Type") == 1, "nothing more is read from the connection"
    assert plain.request("GET", "/")[1] == before


def test_several_requests_at_once_are_answered_in_order(plain: Server) -> None:
    posts = [HEAD + b"Content-Length: 4\r\n\r\n%03d\n" % n for n in range(50)]
    with plain.connect() as sock:
        sock.sendall(b"".join(posts) + b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n")
        said = closed(sock)
    assert (said.count(b"HTTP/1.1 200"), said.count(b"HTTP/1.1 404")) == (50, 1)
    assert [row["value"] for row in plain.rows()][-50:] == [f"{n:03}" for n in range(50)]


def test_a_line_that_only_looks_like_http_is_a_record(plain: Server) -> None:
    lines = [b"PUT it down", b'127.0.0.1 "GET / HTTP/1.1" 200', b"GET / HTTP/1.1", b"Host: a"]
    assert plain.talk(*(line + b"\n" for line in lines))[-1] == "OK 4"
    assert [row["value"].encode() for row in plain.rows()][-4:] == lines


def test_junk_of_any_kind_does_not_end_the_server_and_is_not_taken(tmp_path: Path) -> None:
    chance = random.Random(3)
    good = HEAD + b"Content-Length: 8\r\nMidstream-Producer: p\r\nMidstream-Sequence: 0\r\n\r\n" + b'{"n":1}\n'
    with served(tmp_path / "spool", *SCHEMA) as server:
        for _ in range(300):
            junk = bytearray(good)
            for _ in range(chance.randrange(1, 6)):
                junk[chance.randrange(len(junk))] = chance.randrange(256)
            with server.connect() as sock:
                sock.sendall(junk[: chance.randrange(len(junk) + 1)])
                sock.shutdown(socket.SHUT_WR)
                closed(sock)
        assert server.post(record(7))[0] == 200
        assert [row for row in server.rows() if row["n"] != 7 and not isinstance(row["n"], int)] == []


# --- slow and silent peers ------------------------------------------------------------------------------------------


def begun(server: Server, *beginnings: bytes) -> list[socket.socket]:
    """Connect, and send the beginning of something."""
    socks = [server.connect() for _ in beginnings]
    for sock, beginning in zip(socks, beginnings, strict=True):
        sock.sendall(beginning)
    return socks


def test_slow_bodies_and_half_lines_do_not_keep_others_waiting(plain: Server) -> None:
    body, chunks = HEAD + b"Content-Length: 99\r\n\r\nx", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nx"
    with contextlib.ExitStack() as stack:
        for sock in begun(plain, *[body, chunks, HEAD, b"half a line", b"", b"AUT"] * 10):
            stack.enter_context(sock)
        assert plain.post("served")[0] == 200
        assert plain.talk(b"served too\n") == ["OK 1"]
    assert [row["value"] for row in plain.rows()][-2:] == ["served", "served too"]


def test_when_there_are_too_many_connections_the_idle_ones_go_and_producers_stay(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(tmp_path / "spool", "--max-connections", "20"))
        producer = stack.enter_context(server.connect())
        answers = stack.enter_context(producer.makefile())
        producer.sendall(b"first\n")
        assert answers.readline() == "OK 1\n"
        idle = [stack.enter_context(sock) for sock in begun(server, *[b""] * 60)]
        assert server.post("from a newcomer")[0] == 200
        assert [closed(sock) for sock in idle[:40]] == [b""] * 40, "the oldest of them"
        producer.sendall(b"last\n")
        assert answers.readline() == "OK 2\n"
        idle[-1].sendall(b"was never told to go\n")
        assert idle[-1].recv(100) == b"OK 1\n"
        assert [row["value"] for row in server.rows()] == ["first", "from a newcomer", "last", "was never told to go"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is not an address of this machine")
def test_an_address_cannot_take_the_places_of_others(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(tmp_path / "spool", "--max-connections", "20"))
        place = ("127.0.0.1", server.port)
        others = [socket.create_connection(place, timeout=30, source_address=("127.0.0.2", 0)) for _ in range(5)]
        for sock in [*others, *begun(server, *[b""] * 60)]:
            stack.enter_context(sock)
        assert server.post("one")[0] == 200
        for sock in others:
            sock.sendall(b"still here\n")
            assert sock.recv(100) == b"OK 1\n"


def test_who_is_silent_or_does_not_finish_or_does_not_read_is_closed(tmp_path: Path) -> None:
    with served(tmp_path / "spool", "--idle", "0.5") as server:
        kinds = {
            b"": b"",
            b"PRODUCER p\n": b"AT 0\n",
            b"one\n": b"OK 1\n",
            b"one\nhalf a li": b"OK 1\nERR 1 it took too long to arrive\n",
            b"no newline": b"ERR 0 it took too long to arrive\n",
            b"GET / HTTP": b"ERR 0 it took too long to arrive\n",
            HEAD: b"HTTP/1.1 408",
            HEAD + b"Content-Length: 9\r\n\r\nx": b"HTTP/1.1 408",
            HEAD + b"Content-Length: 4\r\n\r\none\n": b"HTTP/1.1 200",
        }
        for sock, wanted in zip(begun(server, *kinds), kinds.values(), strict=True):
            with sock:
                said = closed(sock)
                assert said == wanted or said.startswith(wanted) is wanted.startswith(b"HTTP") is True
                assert said.count(b"HTTP/1.1") <= 1, "a silent peer gets no answer"
        with server.connect() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with pytest.raises(ConnectionError):
                sock.sendall(b"\xff\n" * 4_000_000)  # its errors are never read
        assert server.post("still there")[0] == 200


def test_half_a_message_of_arrow_is_closed_as_well(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64()), ("s", pa.string())])) as out:
        out.write_table(pa.table({"n": pa.array(range(9), pa.int64()), "s": ["x"] * 9}))
    stream = sink.getvalue().to_pybytes()
    huge = b"\xff\xff\xff\xff" + (1 << 24).to_bytes(4, "little")
    with served(tmp_path / "spool", *SCHEMA, "--format", "arrow", "--idle", "0.5") as server:
        for sock in begun(server, stream[:-40], stream[:5], huge):
            with sock:
                assert closed(sock) == b"ERR 0 it took too long to arrive\n"
        assert server.talk(stream)[-1] == "OK 9"


def test_the_memory_of_what_is_not_finished_is_bounded_and_the_slowest_goes(tmp_path: Path) -> None:
    with served(tmp_path / "spool", "--max-bytes", str(1 << 20)) as server, contextlib.ExitStack() as stack:
        half = HEAD + b"Content-Length: 131072\r\n\r\n" + b"x" * 120_000
        slow = [stack.enter_context(begun(server, half)[0]) for _ in range(24)]  # 2 MiB, 16 bodies, are the most
        assert closed(slow[0]).startswith(b"HTTP/1.1 408")
        assert server.post("small")[0] == 200
        assert server.post("y" * 60_000)[0] == 200
        slow[-1].sendall(b"x" * 11_071 + b"\n")
        assert slow[-1].recv(100).startswith(b"HTTP/1.1 413"), (
            "the youngest may finish: its line is too long, that is all"
        )


def test_few_open_files_are_no_reason_to_end(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(tmp_path / "spool", files=300))
        for sock in begun(server, *[b""] * 400):
            stack.enter_context(sock)
        assert server.post("served")[0] == 200
        assert server.process.poll() is None


# --- what takes long ------------------------------------------------------------------------------------------------


def test_a_body_of_nothing_but_short_or_refused_lines_is_refused_whole(tmp_path: Path) -> None:
    with served(tmp_path / "spool", *SCHEMA) as server:
        status, answer = server.request("POST", "/", b"x\n" * 400_000)
        assert (status, answer["accepted"]) == (400, 0)
        assert answer["error"].startswith("more than 10000 refused records at once; record 0: JSON")
        assert server.request("POST", "/", b"x\n" * 600_000)[1]["error"].startswith("more than 524288 lines at once")
        status, answer = server.request("POST", "/", b"1\r\n\n\r\n" * 70_000, Transfer_Encoding="chunked")
        assert (status, answer["error"]) == (413, "more than 65536 chunks")
        assert len(server.letters()) == 2
        told = server.talk(b"x\n" * 12_000, record(1).encode() + b"\n")
        assert [line.split(" ")[:2] for line in told if line.startswith("ERR")] == [
            ["ERR", str(n)] for n in range(12_000)
        ]
        assert told[-1] == "OK 12001", "a stream is taken in small blocks, so each of its lines is answered"
        assert server.rows() == [{"n": 1, "s": "x" * 70}]
