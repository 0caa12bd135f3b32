"""Records over plain TCP: a stream of lines, or of Arrow messages, answered with what is on disk.

```
> PRODUCER sensor-7          optional, first line
< AT 1200                    continue with record 1200
> {"t": 21.5}                records
> nonsense
< ERR 1201 JSON is malformed: …
< OK 1202                    the first 1202 records are done: on disk, or refused with ERR
```
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

from midstream.ingest.committer import Block, Committer, Full, Gap, Malformed, Stored
from midstream.ingest.peer import DismissedError, Peer
from midstream.ingest.settings import ServerSettings, is_producer

COMMAND_BYTES = 512
LINES = 4096  # at a time, so that others get their turn, and every refusal can be answered
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY, _ROWS = 2, 3  # Arrow's numbers for the headers of messages; 1 is a schema


class _RefusedError(Exception):
    """A stream that is read no further; the answer says at which record, and why."""

    def __init__(self, reason: str, at: int | None = None) -> None:
        super().__init__(reason)
        self.at = at


async def serve(peer: Peer, committer: Committer, settings: ServerSettings) -> None:
    """Take records from a connection until it closes."""
    try:
        await _authenticate(peer, settings)
        producer, at = await _producer(peer, committer)
    except _RefusedError as error:
        return await peer.send(f"ERR 0 {error}")
    except DismissedError as error:
        return await dismiss(peer, 0, error)
    blocks = _arrow_blocks(peer, settings) if settings.format == "arrow" else _line_blocks(peer, settings)
    try:
        async for data, rest in blocks:
            outcome = await _stored(peer, committer, Block(data, peer.name, producer, at))
            errors = [f"ERR {at + refused.place} {refused.reason}" for refused in outcome.refused]
            at += outcome.records
            # The next block is read only now: meanwhile it waits in the socket, and the order is kept.
            await peer.send(*errors, f"OK {at}")
            peer.finished(rest, stored=outcome.records > len(outcome.refused))
    except _RefusedError as error:
        return await peer.send(f"ERR {at if error.at is None else error.at} {error}")
    except DismissedError as error:
        return await dismiss(peer, at, error)


async def dismiss(peer: Peer, at: int, error: DismissedError) -> None:
    """Tell a peer why it is dismissed, if it has begun a record."""
    if peer.unfinished:
        await peer.send(f"ERR {at} {error}")


async def _authenticate(peer: Peer, settings: ServerSettings) -> None:
    line = await peer.first_line(COMMAND_BYTES)
    if line is not None and line.startswith(b"AUTH "):
        await peer.line(COMMAND_BYTES)
        if not settings.admits(line[len(b"AUTH ") :]):
            raise _RefusedError("wrong token")
        peer.finished(len(peer.buffer))
    elif settings.token is not None:
        raise _RefusedError("the first line must be AUTH and the token")


async def _producer(peer: Peer, committer: Committer) -> tuple[str | None, int]:
    """Take the line of a producer, if there is one, and tell it where to continue."""
    line = await peer.first_line(COMMAND_BYTES)
    if line is None or not line.startswith(b"PRODUCER "):
        return None, 0
    await peer.line(COMMAND_BYTES)
    producer = line[len(b"PRODUCER ") :].decode(errors="replace").strip()
    if not is_producer(producer):
        raise _RefusedError("the name of a producer is 1 to 100 letters, digits, '.', '_', ':' or '-'")
    if not committer.knows(producer):
        raise _RefusedError("there are too many producers")
    at = committer.following(producer)
    await peer.send(f"AT {at}")
    peer.finished(len(peer.buffer))
    return producer, at


async def _stored(peer: Peer, committer: Committer, block: Block) -> Stored:
    """Submit a block until there is room for it."""
    while True:
        with peer.served():
            outcome = await committer.submit(block)
        if not isinstance(outcome, Full):
            break
        room = asyncio.ensure_future(committer.room())
        ended = asyncio.ensure_future(peer.ended())
        try:
            await asyncio.wait((room, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                ended.result()
                raise _RefusedError("the server is stopping")
        finally:
            room.cancel()
            ended.cancel()
    if isinstance(outcome, Gap):
        raise _RefusedError("another connection of this producer went back", outcome.following)
    if isinstance(outcome, Malformed):
        raise _RefusedError(outcome.reason)
    return outcome


async def _line_blocks(peer: Peer, settings: ServerSettings) -> AsyncIterator[tuple[bytes, int]]:
    """Cut the stream after newlines; with each block goes the number of bytes that came after it.

    Of a line that is too long only the beginning is kept, enough to refuse it.
    """
    limit = settings.max_record + 2  # too long even without a carriage return
    rest = b""
    while peer.buffer or await peer.more():
        whole, newline, tail = peer.take().rpartition(b"\n")
        if newline:
            lines, rest = (rest + whole).split(b"\n"), tail[:limit]
            for first in range(0, len(lines), LINES):
                yield b"\n".join([*lines[first : first + LINES], b""]), len(rest)
        else:
            rest = (rest + tail)[:limit]
            peer.keep(len(rest))
    if rest.strip() and not peer.stopping:
        raise _RefusedError("the last line has no newline, so it may be torn and was not taken")


async def _arrow_blocks(peer: Peer, settings: ServerSettings) -> AsyncIterator[tuple[bytes, int]]:
    """Cut the stream into messages; yield each with rows after the schema, as a stream of its own."""
    schema = b""
    while (prefix := await peer.exactly(8)) is not None:
        mark, size = struct.unpack("<II", prefix)
        if mark == _CONTINUATION and size == 0:
            return
        if mark != _CONTINUATION or size > settings.max_body:
            raise _RefusedError("not an Arrow stream")
        header = await peer.exactly(size)
        if header is None:
            return
        kind, length = _described(header)
        if not 0 <= length <= settings.max_body:
            raise _RefusedError(f"an Arrow message of {length} bytes; {settings.max_body} is the most")
        body = await peer.exactly(length)
        if body is None:
            return
        if kind == _DICTIONARY:
            raise _RefusedError("dictionaries are not supported; send plain columns")
        message = prefix + header + body
        if kind == _ROWS:
            yield schema + message, len(peer.buffer)
        else:
            schema = message


def _described(header: bytes) -> tuple[int, int]:
    """Read the kind of an Arrow message, and the length of its body, from its flatbuffer: fields 1 and 3."""
    try:
        (table,) = struct.unpack_from("<I", header)
        (back,) = struct.unpack_from("<i", header, table)
        vtable = table - back
        (length,) = struct.unpack_from("<H", header, vtable)
        offsets = [struct.unpack_from("<H", header, vtable + 4 + 2 * i)[0] for i in range(4) if 4 + 2 * i < length]
        offsets += [0] * (4 - len(offsets))
        kind = header[table + offsets[1]] if offsets[1] else 0
        size = struct.unpack_from("<q", header, table + offsets[3])[0] if offsets[3] else 0
    except (struct.error, IndexError):
        raise _RefusedError("not an Arrow stream") from None
    return kind, size
