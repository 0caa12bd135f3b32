"""One port for both protocols: who begins with an HTTP request is answered so, all others send records as they are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from midstream.errors import MidstreamError
from midstream.ingest import records, tcp
from midstream.ingest.committer import Committer
from midstream.ingest.http import REQUEST, HttpServer
from midstream.ingest.peer import Peer
from midstream.ingest.settings import Settings
from midstream.sources.spool_writer import SpoolWriter

MAX_CONNECTIONS = 1000
FAREWELL = 5.0  # seconds that connections have for their last acknowledgements when the server stops
SECONDS_TO_AUTHENTICATE = 10.0
STATUS_EVERY = 2.0
SOCKET_BYTES = 1 << 18

Report = Callable[[str], object]


class Server:
    """Listens, and hands each connection to its protocol.

    Promised: a stop acknowledges what is on disk, and then closes.
    """

    def __init__(self, committer: Committer, settings: Settings) -> None:
        self._committer, self._settings = committer, settings
        self._http = HttpServer(committer, settings)
        self._stopping = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, listening: Report, status: Report) -> None:
        """Serve until `stop`, or until the disk fails."""
        try:
            server = await asyncio.start_server(
                self._connected, self._settings.host, self._settings.port, limit=SOCKET_BYTES
            )
        except OSError as error:
            raise MidstreamError(
                f"cannot listen on {self._settings.host}:{self._settings.port}: {error.strerror or error}. "
                "Choose another port, or stop what uses it"
            ) from None
        listening(", ".join("{}:{}".format(*socket.getsockname()[:2]) for socket in server.sockets))
        duties = [
            asyncio.ensure_future(duty)
            for duty in (self._committer.run(), self._committer.release(), self._tell(status))
        ]
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([stop, *duties], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        server.close()
        failed = next((duty for duty in duties if duty.done()), None)
        if failed is None and self._connections:
            await asyncio.wait(self._connections, timeout=FAREWELL)
        for task in [*self._connections, *duties, stop]:
            task.cancel()
        await asyncio.gather(*self._connections, *duties, return_exceptions=True)
        if failed is not None:
            _explain(failed)

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    async def _tell(self, status: Report) -> None:
        before = 0
        while True:
            await asyncio.sleep(STATUS_EVERY)
            now, used = self._committer.records, self._committer.used
            status(
                f"{now:,} records, {(now - before) / STATUS_EVERY:,.0f}/s, {self._committer.refused:,} refused, "
                f"{used / self._committer.max_bytes:.0%} of the disk bound, {len(self._connections)} connections"
                + (", FULL: producers wait" if self._committer.full else "")
            )
            before = now

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS or self._stopping.is_set():
            writer.close()
            return
        self._connections.add(task)
        peer = Peer(reader, writer, self._stopping, self._settings.chunk)
        try:
            with contextlib.suppress(ConnectionError, asyncio.TimeoutError, asyncio.CancelledError):
                await self._serve(peer)
        finally:
            self._connections.discard(task)
            with contextlib.suppress(asyncio.CancelledError):
                await peer.close()

    async def _serve(self, peer: Peer) -> None:
        # Who has no token yet must not hold a connection for long.
        patience = SECONDS_TO_AUTHENTICATE if self._settings.token is not None else None
        line = await asyncio.wait_for(peer.first_line(tcp.COMMAND_BYTES), patience)
        if line is not None and REQUEST.fullmatch(line):
            await self._http.serve(peer)
        else:
            await tcp.serve(peer, self._committer, self._settings)


def _explain(failed: asyncio.Future[None]) -> None:
    """Raise what ended a duty of the server; an error of the disk as a message."""
    try:
        failed.result()
    except OSError as error:
        raise MidstreamError(
            f"the spool cannot be written: {error}. What was acknowledged is on disk; see to the disk, and start again"
        ) from error


def run(settings: Settings, directory: str, *, listening: Report, status: Report) -> None:
    """Serve a spool until SIGINT or SIGTERM; then acknowledge what is on disk, and return."""
    settings.check()
    writer = SpoolWriter(directory, settings.columns, max_bytes=settings.max_bytes)
    asyncio.run(_run(settings, writer, listening, status))


async def _run(settings: Settings, writer: SpoolWriter, listening: Report, status: Report) -> None:
    committer = Committer(writer, records.of(settings.format, settings.columns, settings.max_record))
    server = Server(committer, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    try:
        await server.run(listening, status)
    finally:
        committer.close()
