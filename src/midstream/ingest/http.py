"""Records over HTTP: `POST /` a body of records, and the answer comes when they are on disk.

`GET /` tells how the server is, `GET /producers/<id>` which sequence number a producer should send next.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any

import msgspec

from midstream.ingest.committer import Block, Committer, Full, Gap, Malformed, Stored
from midstream.ingest.peer import Peer, TooLongError
from midstream.ingest.settings import Settings, is_producer

REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.([01])")
HEADER_BYTES = 16 << 10
BODIES = 16  # read at a time, so that memory is bounded
SECONDS_PER_BODY = 60.0
RETRY_AFTER = 1


class _Refusal(Exception):  # noqa: N818 (an answer, not an error of ours)
    """A request that is answered with a status and a reason; afterwards the connection cannot be used again."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpServer:
    """Answers the requests of all connections."""

    def __init__(self, committer: Committer, settings: Settings) -> None:
        self._committer, self._settings = committer, settings
        self._bodies = asyncio.Semaphore(BODIES)

    async def serve(self, peer: Peer) -> None:
        """Answer one request after the other until the connection closes."""
        try:
            while (line := await peer.line(HEADER_BYTES)) is not None:
                match = REQUEST.fullmatch(line)
                if match is None:
                    raise _Refusal(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
                headers = await asyncio.wait_for(_headers(peer), SECONDS_PER_BODY)
                keep = match[3] == b"1" and headers.get("connection", "").lower() != "close"
                status, answer = await self._answer(peer, match[1].decode(), match[2].decode("latin-1"), headers)
                keep = keep and not peer.stopping.is_set()
                await _reply(peer, status, answer, keep)
                if not keep:
                    return
        except _Refusal as refusal:
            await _reply(peer, refusal.status, {"error": str(refusal)}, keep=False)
        except TooLongError:
            await _reply(peer, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, {"error": "too long a line"}, keep=False)

    async def _answer(
        self, peer: Peer, method: str, path: str, headers: dict[str, str]
    ) -> tuple[HTTPStatus, dict[str, Any]]:
        if "origin" in headers:  # a web page in a browser on this machine is not a producer
            raise _Refusal(HTTPStatus.FORBIDDEN, "requests of web pages are not taken")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._settings.token is not None and not (
            scheme.lower() == "bearer" and self._settings.admits(token.encode("latin-1"))
        ):
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "send the token as `Authorization: Bearer TOKEN`")
        if method == "POST" and path == "/":
            block = Block(b"", peer.name, *self._producer(headers))
            async with self._bodies:
                data = await self._body(peer, headers)
                return await self._store(Block(data, block.source, block.producer, block.sequence))
        if method != "GET":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "POST records to /, or GET / or /producers/<id>")
        if path == "/":
            return HTTPStatus.OK, self._status()
        if path.startswith("/producers/"):
            return HTTPStatus.OK, {"next": self._committer.following(path.removeprefix("/producers/"))}
        raise _Refusal(HTTPStatus.NOT_FOUND, "there are only / and /producers/<id>")

    def _status(self) -> dict[str, Any]:
        committer = self._committer
        return {
            "records": committer.records,
            "rejected": committer.refused,
            "bytes": committer.used,
            "max_bytes": committer.max_bytes,
            "full": committer.full,
        }

    def _producer(self, headers: dict[str, str]) -> tuple[str | None, int]:
        producer, sequence = headers.get("midstream-producer"), headers.get("midstream-sequence", "")
        if producer is None:
            return None, 0
        if (
            not is_producer(producer)
            or not self._committer.knows(producer)
            or not re.fullmatch("[0-9]{1,18}", sequence)
        ):
            raise _Refusal(
                HTTPStatus.BAD_REQUEST,
                "Midstream-Producer must be 1 to 100 letters, digits, '.', '_', ':' or '-', and Midstream-Sequence "
                "the number of the first record",
            )
        return producer, int(sequence)

    async def _body(self, peer: Peer, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            await peer.send_bytes(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if "transfer-encoding" in headers and (not chunked or "content-length" in headers):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the length of the body is not clear")
        reading = self._chunks(peer) if chunked else self._counted(peer, headers.get("content-length"))
        try:
            body = await asyncio.wait_for(reading, SECONDS_PER_BODY)
        except asyncio.TimeoutError:
            raise _Refusal(HTTPStatus.REQUEST_TIMEOUT, f"no body within {SECONDS_PER_BODY:.0f} s") from None
        if body is None:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the body is shorter than announced; nothing was taken")
        return body

    async def _counted(self, peer: Peer, announced: str | None) -> bytes | None:
        if announced is None:
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "send Content-Length, or Transfer-Encoding: chunked")
        if not re.fullmatch("[0-9]{1,18}", announced):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        self._limit(int(announced))
        return await peer.exactly(int(announced))

    async def _chunks(self, peer: Peer) -> bytes | None:
        parts: list[bytes] = []
        total = 0
        while (line := await peer.line(HEADER_BYTES)) is not None:
            text = line.split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", text):
                raise _Refusal(HTTPStatus.BAD_REQUEST, "the size of a chunk is not a number")
            size = int(text, 16)
            if size == 0:
                await _headers(peer)
                return b"".join(parts)
            total += size
            self._limit(total)
            part = await peer.exactly(size)
            if part is None or await peer.line(HEADER_BYTES) is None:
                return None
            parts.append(part)
        return None

    def _limit(self, size: int) -> None:
        most = self._settings.max_body
        if size > most:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of {size} bytes; {most} is the most")

    async def _store(self, block: Block) -> tuple[HTTPStatus, dict[str, Any]]:
        outcome = Full() if self._committer.full else await self._committer.submit(block)
        if isinstance(outcome, Full):
            return HTTPStatus.TOO_MANY_REQUESTS, {"error": "the spool is full; send this again later"}
        if isinstance(outcome, Gap):
            return HTTPStatus.CONFLICT, {"error": "records are missing before these", "next": outcome.following}
        if isinstance(outcome, Malformed):
            return HTTPStatus.BAD_REQUEST, {"accepted": 0, "error": outcome.reason}
        answer: dict[str, Any] = {"accepted": outcome.accepted, "rejected": len(outcome.refused)}
        if outcome.refused:
            answer["first"] = f"record {outcome.refused[0].place}: {outcome.refused[0].reason}"
        if block.producer is not None:
            answer |= {"duplicates": outcome.duplicates, "next": self._committer.following(block.producer)}
        return self._status_of(outcome), answer

    def _status_of(self, outcome: Stored) -> HTTPStatus:
        if not outcome.refused:
            return HTTPStatus.OK
        if outcome.accepted or outcome.duplicates:
            return HTTPStatus.MULTI_STATUS
        if any(len(refused.content) > self._settings.max_record for refused in outcome.refused):
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return HTTPStatus.BAD_REQUEST


async def _headers(peer: Peer) -> dict[str, str]:
    """Read headers up to the empty line; names in lower case."""
    found: dict[str, str] = {}
    size = 0
    while (line := await peer.line(HEADER_BYTES)) is not None:
        if not line:
            return found
        size += len(line)
        name, colon, content = line.decode("latin-1").partition(":")
        if not colon or size > HEADER_BYTES or name.lower() in found:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the headers cannot be read")
        found[name.lower()] = content.strip()
    raise _Refusal(HTTPStatus.BAD_REQUEST, "the headers have no end")


async def _reply(peer: Peer, status: HTTPStatus, answer: dict[str, Any], keep: bool) -> None:
    body = msgspec.json.encode(answer) + b"\n"
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        head.append(f"Retry-After: {RETRY_AFTER}")
    if status == HTTPStatus.UNAUTHORIZED:
        head.append("WWW-Authenticate: Bearer")
    await peer.send_bytes("\r\n".join([*head, "", ""]).encode() + body)
