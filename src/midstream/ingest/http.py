"""Records over HTTP: `POST /` a body of records, and the answer comes when they are on disk.

`GET /` returns the state of the server, `GET /producers/<id>` the sequence number that a producer should send next.
Requests are parsed by h11, and what two parsers might read in two ways is refused: a proxy in front may be the other.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any

import h11
import msgspec

from midstream.ingest.committer import Block, Committer, Full, Gap, Malformed, Stored
from midstream.ingest.peer import DismissedError, Peer
from midstream.ingest.settings import ServerSettings, is_producer

HEADER_BYTES = 16 << 10
PIECES = 1 << 16  # the most chunks of a body: each costs time, however small it is
RETRY_AFTER = 1

# A connection that begins like this speaks HTTP, well or badly; what is known may end before the line does.
_REQUEST = re.compile(
    rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT|PRI)[ \t]"
    rb"(?:[^\n]*HTTP/[0-9.]*[ \t]*\r?\n|[ \t]*(?:/|http)[^\n]*\Z)",
    re.IGNORECASE,
)
_ONCE = ("host", "authorization", "expect", "origin", "midstream-producer", "midstream-sequence")


def is_request(beginning: bytes) -> bool:
    r"""Tell whether a connection that begins like this speaks HTTP.

    >>> is_request(b"GET / HTTP/1.1\r\nHost: a"), is_request(b"post  /x http/9\n"), is_request(b"PUT it down\n")
    (True, True, False)
    """
    return bool(_REQUEST.match(beginning))


class _Refusal(Exception):  # noqa: N818 (an answer, not an error of ours)
    """A request that is answered with a status and a reason; afterwards the connection cannot be used again."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Wire:
    """A connection as h11 sees it: events come in, answers go out."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self._bare = False  # an answer to HEAD has no body

    async def event(self) -> Any:
        """Return what comes next: a request, a part of its body, its end, or the end of the connection."""
        while (event := self._state.next_event()) is h11.NEED_DATA:
            if self._state.they_are_waiting_for_100_continue:
                await self.peer.send_bytes(self._sent(h11.InformationalResponse(status_code=100, headers=[])))
            if self.peer.buffer or await self.peer.more():
                # In small pieces before a request: h11 checks the length of headers only until their end has come.
                self._state.receive_data(
                    self.peer.take(HEADER_BYTES // 8) if self._state.their_state is h11.IDLE else self.peer.take()
                )
            else:
                self._state.receive_data(b"")  # nothing more will come
        if isinstance(event, h11.Request):
            self._bare = event.method == b"HEAD"
        return event

    async def reply(self, status: int, answer: dict[str, Any], keep: bool) -> None:
        """Answer the request."""
        body = msgspec.json.encode(answer) + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if not keep:
            headers.append(("Connection", "close"))
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            headers.append(("Retry-After", str(RETRY_AFTER)))
        if status == HTTPStatus.UNAUTHORIZED:
            headers.append(("WWW-Authenticate", "Bearer"))
        phrase = HTTPStatus(status).phrase.encode()
        head = self._sent(h11.Response(status_code=status, headers=headers, reason=phrase))
        content = b"" if self._bare else self._sent(h11.Data(data=body))
        await self.peer.send_bytes(head + content + self._sent(h11.EndOfMessage()))

    def next_cycle(self, stored: bool) -> bool:
        """Get ready for another request; false if there can be none."""
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        self.peer.finished(len(self._state.trailing_data[0]) + len(self.peer.buffer), stored=stored)
        return True

    def _sent(self, event: h11.Event) -> bytes:
        return self._state.send(event) or b""


class HttpServer:
    """Answers the requests of all connections."""

    def __init__(self, committer: Committer, settings: ServerSettings) -> None:
        self._committer, self._settings = committer, settings

    async def serve(self, peer: Peer) -> None:
        """Answer one request after the other until the connection closes."""
        wire = _Wire(peer)
        try:
            while isinstance(request := await wire.event(), h11.Request):
                status, answer = await self._answer(wire, request)
                stored = request.method == b"POST" and status in (HTTPStatus.OK, HTTPStatus.MULTI_STATUS)
                await wire.reply(status, answer, keep=not peer.stopping)
                if not wire.next_cycle(stored):
                    return
                await asyncio.sleep(0)  # others first: many requests may have come at once
        except _Refusal as refusal:
            await wire.reply(refusal.status, {"error": str(refusal)}, keep=False)
        except h11.RemoteProtocolError as error:
            if peer.stopping:
                await wire.reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the server is stopping"}, keep=False)
            else:
                await wire.reply(error.error_status_hint, {"error": f"{error}; nothing was stored"}, keep=False)
        except DismissedError as error:
            if peer.unfinished:
                await wire.reply(HTTPStatus.REQUEST_TIMEOUT, {"error": str(error)}, keep=False)

    async def _answer(self, wire: _Wire, request: h11.Request) -> tuple[HTTPStatus, dict[str, Any]]:
        headers = _checked(request)
        if "origin" in headers:  # a web page in a browser on this machine is not a producer
            raise _Refusal(HTTPStatus.FORBIDDEN, "requests from web pages are refused")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._settings.token is not None and not (
            scheme.lower() == "bearer" and self._settings.admits(token.encode("latin-1"))
        ):
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "send the token as `Authorization: Bearer TOKEN`")
        path = request.target.decode("latin-1")
        if request.method == b"POST" and path == "/":
            producer, sequence = self._producer(headers)
            data = await self._body(wire, headers)
            with wire.peer.served():
                return await self._store(Block(data, wire.peer.name, producer, sequence))
        if request.method != b"GET":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "POST records to /, or GET / or /producers/<id>")
        if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "GET has no body")
        await wire.event()  # the end of the request, which is here already
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

    async def _body(self, wire: _Wire, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" not in headers:
            if "content-length" not in headers:
                raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "send Content-Length, or Transfer-Encoding: chunked")
            self._limit(int(headers["content-length"]))
        parts: list[bytes] = []
        total = 0
        while isinstance(event := await wire.event(), h11.Data):
            parts.append(event.data)
            total += len(event.data)
            self._limit(total)
            if len(parts) > PIECES:
                raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {PIECES} chunks")
            if len(parts) % 64 == 0:
                await asyncio.sleep(0)  # others first: many chunks may have come at once
        return b"".join(parts)

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


def _checked(request: h11.Request) -> dict[str, str]:
    """Return the headers of a request, by names in lower case; refuse ambiguous ones."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise _Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.1")
    found: dict[str, str] = {}
    for name, content in request.headers:
        key = name.decode("latin-1")
        if key in found and key in _ONCE:
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"{key} is there twice")
        found[key] = content.decode("latin-1")
    if "transfer-encoding" in found and ("content-length" in found or request.http_version == b"1.0"):
        raise _Refusal(HTTPStatus.BAD_REQUEST, "the length of the body is not clear")
    return found
