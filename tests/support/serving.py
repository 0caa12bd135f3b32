"""The server of `midstream ingest` in the process of the test: milliseconds instead of a start of Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from midstream.ingest import records
from midstream.ingest.committer import Committer
from midstream.ingest.server import Server
from midstream.ingest.settings import ServerSettings
from midstream.sources.spools import columns
from midstream.sources.spools.writer import SpoolWriter

T = TypeVar("T")
COLUMNS = columns.parse("n long, s string")


class Serving:
    """A server that listens, and what a client asks of it."""

    def __init__(self, server: Server, port: int, stopped: asyncio.Future[None]) -> None:
        self.server, self.port, self._stopped = server, port, stopped

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def said_to(self, content: bytes) -> bytes:
        """Send bytes, close the sending half, and give all that is answered."""
        reader, writer = await self.connect()
        writer.write(content)
        writer.write_eof()
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return said

    async def lines(self, *content: bytes) -> list[str]:
        return (await self.said_to(b"".join(content))).decode().splitlines()

    async def stop(self) -> None:
        self.server.stop()
        await asyncio.wait_for(self._stopped, 30)


@asynccontextmanager
async def served(spool: Path, **options: Any) -> AsyncIterator[Serving]:
    settings = ServerSettings(**{"host": "127.0.0.1", "port": 0, "format": "json", "columns": COLUMNS} | options)
    settings.check()
    writer = SpoolWriter(spool, settings.columns, max_bytes=settings.max_bytes)
    committer = Committer(writer, records.of(settings.format, settings.columns, settings.max_record))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = Server(committer, settings)
    running = asyncio.ensure_future(server.run(listening.set_result, lambda status: None))
    try:
        await asyncio.wait([running, listening], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield Serving(server, int(listening.result().rpartition(":")[2]), running)
    finally:
        server.stop()
        await asyncio.wait([running], timeout=30)
        committer.close()
    running.result()


def serving(spool: Path, talk: Callable[[Serving], Awaitable[T]], **options: Any) -> T:
    """Run a server for as long as one talks to it."""

    async def run() -> T:
        async with served(spool, **options) as server:
            return await talk(server)

    return asyncio.run(run())
