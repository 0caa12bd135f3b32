"""The other end of a connection: bytes in, bytes out, until it closes or the server stops."""

from __future__ import annotations

import asyncio


class TooLongError(Exception):
    """A line that is longer than it may be."""


class Peer:
    """Buffers what a connection sends, so that its first line can be looked at before it is taken.

    Promised: once the server stops, nothing more is read; it looks as if the peer had closed.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stopping: asyncio.Event, chunk: int
    ) -> None:
        self.name = "{}:{}".format(*writer.get_extra_info("peername")[:2])
        self.buffer = b""
        self.stopping = stopping
        self._reader, self._writer, self._chunk = reader, writer, chunk
        self._stopped = asyncio.ensure_future(stopping.wait())

    async def more(self) -> bool:
        """Read on; false if nothing will come any more."""
        reading = asyncio.ensure_future(self._reader.read(self._chunk))
        try:
            await asyncio.wait((reading, self._stopped), return_when=asyncio.FIRST_COMPLETED)
            chunk = reading.result() if reading.done() else b""
        except ConnectionError:
            chunk = b""
        finally:
            reading.cancel()
        self.buffer += chunk
        return bool(chunk)

    async def first_line(self, limit: int) -> bytes | None:
        """Look at the first line without taking it; none if the peer has closed before its end or `limit` bytes."""
        while (end := self.buffer.find(b"\n")) < 0:
            if len(self.buffer) > limit or not await self.more():
                return None
        return self.buffer[:end].rstrip(b"\r")

    async def line(self, limit: int) -> bytes | None:
        """Take a line; none if the peer has closed before its end."""
        found = await self.first_line(limit)
        if len(self.buffer if found is None else found) > limit:
            raise TooLongError
        if found is None:
            return None
        self.buffer = self.buffer[self.buffer.index(b"\n") + 1 :]
        return found

    async def exactly(self, size: int) -> bytes | None:
        """Take so many bytes; none if the peer has closed before."""
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

    def take(self) -> bytes:
        """Take all that is buffered."""
        taken, self.buffer = self.buffer, b""
        return taken

    async def send(self, *lines: str) -> None:
        """Send lines, and wait while the peer does not read."""
        self._writer.write("".join(f"{line}\n" for line in lines).encode())
        await self._writer.drain()

    async def send_bytes(self, content: bytes) -> None:
        """Send bytes, and wait while the peer does not read."""
        self._writer.write(content)
        await self._writer.drain()

    async def close(self) -> None:
        """Send what is still to be sent, and hang up."""
        self._stopped.cancel()
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
