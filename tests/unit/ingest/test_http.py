"""Records over HTTP, in the process of the test. The same against a process, and abuse of it, is in tests/cli."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from midstream.ingest import http
from midstream.ingest.http import is_request
from tests.support.ingesting import rows
from tests.support.serving import Serving, serving

TOKEN = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("beginning", "is_http"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n{}", True),
        (b"get / http/1.0\n", True),
        (b"PRI * HTTP/2.0\r\n", True),
        (b"POST\t/ HTTP/1.1\r\n", True),
        (b"DELETE /x HTTP/9.9 \r\n", True),
        (b"GET /" + b"x" * 600, True),  # a line that has not ended yet
        (b"GET http://host/", True),
        (b"GET", False),
        (b"GETS / HTTP/1.1\r\n", False),
        (b"PUT it down\n", False),
        (b"GET / HTTP/1.1 and more\n", False),
        (b' GET / HTTP/1.1\r\n', False),
        (b'127.0.0.1 "GET / HTTP/1.1" 200\n', False),
        (b'{"n": 1}\n', False),
        (b"\nGET / HTTP/1.1\r\n", False),
        (b"", False),
        (b"\xff\xff\xff\xff", False),
    ],
)  # fmt: skip
def test_who_begins_so_speaks_http(beginning: bytes, is_http: bool) -> None:
    assert is_request(beginning) == is_http


def request(method: str = "POST", path: str = "/", body: bytes = b"", **headers: Any) -> bytes:
    """A request as bytes; a header of None is left out."""
    length = len(body) if body or method == "POST" else None
    known = {"Host": "a", "Content-Length": length} | {name.replace("_", "-"): text for name, text in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in known.items() if text is not None)]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answers(said: bytes) -> list[tuple[int, dict[str, str], Any]]:
    """The status, headers and content of each answer."""
    found = []
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", "0"))
        content, said = said[:size], said[size:]
        found.append((int(first.split()[1]), headers, json.loads(content) if content else None))
    return found


def asked(spool: Path, *requests: bytes, **options: Any) -> list[tuple[int, dict[str, str], Any]]:
    """What a server answers to requests on one connection."""

    async def talk(server: Serving) -> bytes:
        return await server.said_to(b"".join(requests))

    return answers(serving(spool, talk, **options))


def outcomes(spool: Path, *requests: bytes, **options: Any) -> list[tuple[int, Any]]:
    return [(status, content) for status, _, content in asked(spool, *requests, **options)]


ONE, TWO = b'{"n":1,"s":"x"}\n', b'{"n":2}\n'


def test_what_is_acknowledged_is_in_the_spool_in_order(tmp_path: Path) -> None:
    found = outcomes(tmp_path, request(body=ONE), request(body=TWO + b"\n" + ONE), request("GET"))
    assert found[:2] == [(200, {"accepted": 1, "rejected": 0}), (200, {"accepted": 2, "rejected": 0})]
    status, about = found[2]
    assert (status, about["records"], about["rejected"], about["full"]) == (200, 3, 0, False)
    assert 0 < about["bytes"] < about["max_bytes"]
    assert rows(tmp_path) == [{"n": 1, "s": "x"}, {"n": 2, "s": None}, {"n": 1, "s": "x"}]


def test_a_body_may_come_in_chunks_or_be_empty(tmp_path: Path) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (ONE[:5], ONE[5:] + TWO))
    chunked = request(Content_Length=None, Transfer_Encoding="chunked") + chunks + b"0\r\n\r\n"
    assert outcomes(tmp_path, chunked, request(body=b"")) == [
        (200, {"accepted": 2, "rejected": 0}),
        (200, {"accepted": 0, "rejected": 0}),
    ]


@pytest.mark.parametrize(
    ("body", "status", "accepted", "rejected"),
    [
        (b"null\n", 400, 0, 1),
        (ONE + b"null\n", 207, 1, 1),
        (b"z" * 101 + b"\n", 413, 0, 1),
        (ONE + b"z" * 101, 207, 1, 1),
    ],
)
def test_refused_records_are_counted_and_the_first_is_explained(
    tmp_path: Path, body: bytes, status: int, accepted: int, rejected: int
) -> None:
    ((found, answer),) = outcomes(tmp_path, request(body=body), max_record=100)
    assert (found, answer["accepted"], answer["rejected"]) == (status, accepted, rejected)
    assert answer["first"].startswith(f"record {accepted}: ")


def test_a_producer_is_told_what_is_next_and_stored_once(tmp_path: Path) -> None:
    def sent(first: Any, body: bytes) -> bytes:
        return request(body=body, Midstream_Producer="p", Midstream_Sequence=first)

    found = outcomes(tmp_path, sent(0, ONE), sent(0, ONE + TWO), sent(5, ONE), request("GET", "/producers/p"))
    assert found == [
        (200, {"accepted": 1, "rejected": 0, "duplicates": 0, "next": 1}),
        (200, {"accepted": 1, "rejected": 0, "duplicates": 1, "next": 2}),
        (409, {"error": "records are missing before these", "next": 2}),
        (200, {"next": 2}),
    ]
    assert outcomes(tmp_path, request("GET", "/producers/nobody")) == [(200, {"next": 0})]


@pytest.mark.parametrize(
    ("wrong", "status", "reason"),
    [
        (request("PUT", body=ONE), 405, "POST records to /"),
        (request("HEAD"), 405, None),
        (request("POST", "/elsewhere", ONE), 405, "POST records to /"),
        (request("GET", "/nothing"), 404, "there are only / and /producers/<id>"),
        (request("GET", body=ONE), 400, "GET has no body"),
        (request(body=ONE, Origin="http://page"), 403, "requests from web pages are refused"),
        (request(Content_Length=None), 411, "send Content-Length"),
        (request(Content_Length=1 << 40), 413, "is the most"),
        (request(body=ONE, Midstream_Producer="a b", Midstream_Sequence=0), 400, "Midstream-Producer must be"),
        (request(body=ONE, Midstream_Producer="p"), 400, "Midstream-Sequence"),
        (request(body=ONE, Midstream_Producer="p", Midstream_Sequence="-1"), 400, "Midstream-Sequence"),
        (request(body=ONE, Midstream_Producer="p", Midstream_Sequence="9" * 19), 400, "Midstream-Sequence"),
        (request(body=ONE).replace(b"Host: a\r\n", b"Host: a\r\nHost: b\r\n"), 400, ""),
        (request(body=ONE).replace(b"HTTP/1.1", b"HTTP/2.0"), 505, "this server speaks HTTP/1.1"),
        (request(body=ONE, Transfer_Encoding="chunked"), 400, "the length of the body is not clear"),
    ],
)
def test_what_is_not_taken_is_answered_and_ends_the_connection(
    tmp_path: Path, wrong: bytes, status: int, reason: str | None
) -> None:
    ((found, headers, answer),) = asked(tmp_path, wrong + request(body=TWO))
    assert (found, headers["connection"]) == (status, "close")
    assert answer is None if reason is None else reason in answer["error"]
    assert rows(tmp_path) == [], "nothing that came behind it is taken either"


def test_without_the_token_nothing_is_taken(tmp_path: Path) -> None:
    for wrong in (None, "Bearer wrong", f"Basic {TOKEN.decode()}", TOKEN.decode()):
        ((status, headers, _),) = asked(tmp_path, request(body=ONE, Authorization=wrong), token=TOKEN)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert rows(tmp_path) == []
    for right in ("Bearer 0123456789abcdef", "bearer 0123456789abcdef"):
        assert outcomes(tmp_path, request(body=ONE, Authorization=right), token=TOKEN)[0][0] == 200


def test_a_full_spool_asks_to_come_again(tmp_path: Path) -> None:
    body = b'{"n":1}\n' * 500
    found = asked(tmp_path, *[request(body=body)] * 30, max_bytes=1 << 16, max_record=100)
    statuses = [status for status, _, _ in found]
    assert (statuses[0], statuses[-1], len(statuses)) == (200, 429, 30)
    assert set(statuses) == {200, 429}
    assert found[-1][1]["retry-after"] == "1"
    assert len(rows(tmp_path)) == 500 * statuses.count(200)


def test_too_many_chunks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PIECES", 100)
    content = request(Content_Length=None, Transfer_Encoding="chunked") + b"1\r\n\n\r\n" * 102 + b"0\r\n\r\n"
    assert outcomes(tmp_path, content) == [(413, {"error": "more than 100 chunks"})]


def test_who_waits_for_the_word_to_go_on_gets_it(tmp_path: Path) -> None:
    async def talk(server: Serving) -> tuple[bytes, bytes]:
        reader, writer = await server.connect()
        writer.write(request(Content_Length=len(ONE), Expect="100-continue"))
        first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writer.write(ONE)
        writer.write_eof()
        rest = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return first, rest

    first, rest = serving(tmp_path, talk)
    assert first.startswith(b"HTTP/1.1 100 ")
    assert [(status, content) for status, _, content in answers(rest)] == [(200, {"accepted": 1, "rejected": 0})]


def test_what_was_begun_when_the_server_stops_is_not_taken(tmp_path: Path) -> None:
    async def talk(server: Serving) -> bytes:
        reader, writer = await server.connect()
        writer.write(request(body=ONE)[:-5])
        while not server.server._connections or not any(peer.unfinished for peer in server.server._connections):
            await asyncio.sleep(0.001)
        await server.stop()
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return said

    ((status, headers, answer),) = answers(serving(tmp_path, talk))
    assert (status, headers["connection"], answer) == (503, "close", {"error": "the server is stopping"})
    assert rows(tmp_path) == []
