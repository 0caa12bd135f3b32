"""The other end of a connection: bytes in, bytes out, until it closes, is dismissed, or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_TO_FINISH = 60.0  # for all of a request, a line or a message, once its first byte is here; or the idle time
_SECONDS_TO_CLOSE = 5.0


class DismissedError(Exception):
    """A peer is dismissed: it is too slow, or has to make room for others."""


class Host(Protocol):
    """The owner of a peer, which accepted it and may dismiss it."""

    idle: float  # seconds that a peer may do nothing

    def moved(self, peer: Peer, stored: bool) -> None:
        """Note that something has happened for a peer."""
        ...

    def hold(self, peer: Peer, size: int) -> None:
        """Note how many bytes a peer has sent and not finished."""
        ...


class Peer:
    """Buffers what a connection sends, so that its first line can be inspected before it is taken.

    Promised: once the server stops, nothing more is read; it looks as if the peer had closed. A peer that sends nothing
    for the idle time, does not finish what it has begun, or does not read its answers is dismissed.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: Host, chunk: int
    ) -> None:
        self.address, port = writer.get_extra_info("peername")[:2]
        self.name = f"{self.address}:{port}"
        self.buffer = b""
        self.busy = False  # its records are being written: it cannot be dismissed now
        self._reader, self._writer, self._chunk = reader, writer, chunk
        self._connections = connections
        self._patience = min(SECONDS_TO_FINISH, connections.idle)
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()  # when something was finished
        self._begun: float | None = None  # when the first byte of what comes next arrived
        self._size = 0  # its bytes
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why; "": the server stops

    @property
    def stopping(self) -> bool:
        """Whether the server stops."""
        return self._ending.done() and not self._ending.result()

    @property
    def unfinished(self) -> bool:
        """Whether it has begun something and not finished it."""
        return self._begun is not None

    def age(self) -> float:
        """Return the seconds since it began what is not finished yet."""
        return 0.0 if self._begun is None else self._clock() - self._begun

    def dismiss(self, reason: str) -> None:
        """Send it the reason, and hang up; without a reason, read nothing more from it."""
        if not self._ending.done():
            self._ending.set_result(reason)
        if reason and self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()  # it does not read, so no reason can be sent

    def finished(self, rest: int = 0, *, stored: bool = False) -> None:
        """Note that something is done: a request is answered, records are stored; this many bytes came after it."""
        self._last = self._clock()
        self._begun = self._last if rest else None
        self.keep(rest)
        self._connections.moved(self, stored)

    def keep(self, size: int) -> None:
        """Note how many bytes of what is not finished are kept."""
        self._size = size
        self._connections.hold(self, size)

    @contextmanager
    def served(self) -> Iterator[None]:
        """While its records are written it cannot be dismissed."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    async def ended(self) -> None:
        """Wait until it is dismissed; `DismissedError` unless the server stops."""
        await asyncio.wait((self._ending,))
        if self._ending.result():
            raise DismissedError(self._ending.result())

    async def more(self) -> bool:
        """Read more; false if nothing more will come. `DismissedError` if it is dismissed."""
        idle = self._connections.idle
        limit = self._last + idle if self._begun is None else self._begun + self._patience
        reading = asyncio.ensure_future(self._reader.read(self._chunk))
        try:
            wait = max(0.0, limit - self._clock())
            await asyncio.wait((reading, self._ending), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.done():
                await self.ended()
                return False
            if not reading.done():
                raise DismissedError(
                    "nothing came for too long" if self._begun is None else "it took too long to arrive"
                )
            chunk = reading.result()
        except ConnectionError:
            chunk = b""
        finally:
            reading.cancel()
        if chunk:
            self._begun = self._begun or self._clock()
            self.buffer += chunk
            self.keep(self._size + len(chunk))
        return bool(chunk)

    async def first_line(self, limit: int) -> bytes | None:
        """Return the first line without taking it; none if the peer has closed before its end or `limit` bytes."""
        while (end := self.buffer.find(b"\n")) < 0:
            if len(self.buffer) > limit or not await self.more():
                return None
        return self.buffer[:end].rstrip(b"\r") if end <= limit else None

    async def line(self, limit: int) -> bytes | None:
        """Take a line; none if the peer has closed before its end or `limit` bytes."""
        found = await self.first_line(limit)
        if found is not None:
            self.buffer = self.buffer[self.buffer.index(b"\n") + 1 :]
        return found

    async def exactly(self, size: int) -> bytes | None:
        """Take this many bytes; none if the peer has closed before."""
        parts, missing = [self.buffer], size - len(self.buffer)
        while missing > 0:
            self.buffer = b""
            if not await self.more():
                return None
            parts.append(self.buffer)
            missing -= len(self.buffer)
        whole = b"".join(parts)
        self.buffer = whole[size:]
        return whole[:size]

    def take(self, most: int | None = None) -> bytes:
        """Take what is buffered, or the beginning of it."""
        taken, self.buffer = self.buffer[:most], b"" if most is None else self.buffer[most:]
        return taken

    async def send(self, *lines: str) -> None:
        """Send lines, and wait while the peer does not read."""
        await self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    async def send_bytes(self, content: bytes) -> None:
        """Send bytes, and wait while the peer does not read, but not for ever."""
        self._writer.write(content)
        if self._writer.transport.get_write_buffer_size():
            await asyncio.wait_for(self._writer.drain(), self._patience)

    async def close(self) -> None:
        """Send what is still to be sent, and hang up."""
        self._writer.close()
        if not self._writer.transport.get_write_buffer_size():
            return
        try:
            await asyncio.wait_for(self._writer.wait_closed(), _SECONDS_TO_CLOSE)
        except asyncio.TimeoutError:
            self._writer.transport.abort()  # it does not read
        except OSError:
            return
