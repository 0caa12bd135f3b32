"""One port for both protocols: a connection that begins like HTTP is served as HTTP, any other sends plain records."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from collections.abc import Callable

from midstream.errors import MidstreamError
from midstream.ingest import records, tcp
from midstream.ingest.committer import Committer
from midstream.ingest.connections import Connections
from midstream.ingest.http import HttpServer, is_request
from midstream.ingest.peer import DismissedError, Peer
from midstream.ingest.settings import ServerSettings
from midstream.sources.spools.writer import SpoolWriter

BACKLOG = 1024  # connections that the system keeps until they are accepted
SPARE_FILES = 256  # that a process may open beside its connections: a hundred are accepted at a time
FAREWELL = 5.0  # seconds that connections have for their last acknowledgements when the server stops
SECONDS_TO_AUTHENTICATE = 10.0
STATUS_EVERY = 2.0
SWITCH = 0.0005  # seconds after which a busy thread lets another one run
SOCKET_BYTES = 1 << 16

Report = Callable[[str], object]


class Server:
    """Listens, and hands each connection to its protocol.

    Promised: a stop acknowledges what is on disk, and then closes.
    """

    def __init__(self, committer: Committer, settings: ServerSettings) -> None:
        self._committer, self._settings = committer, settings
        self._http = HttpServer(committer, settings)
        self._stopping = asyncio.Event()
        self._connections = Connections(_bounded(settings.max_connections), settings.idle, settings.memory)
        self._tasks: set[asyncio.Task[None]] = set()

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
        for listener in server.sockets:
            with listener.dup() as same:
                same.listen(BACKLOG)  # asyncio's own backlog is also how many it accepts before it does anything else
        listening(", ".join("{}:{}".format(*socket.getsockname()[:2]) for socket in server.sockets))
        duties = [
            asyncio.ensure_future(duty)
            for duty in (self._committer.run(), self._committer.release(), self._tell(status))
        ]
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([stop, *duties], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        server.close()
        for peer in self._connections:
            peer.dismiss("")
        failed = next((duty for duty in duties if duty.done()), None)
        if failed is None and self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL)
        for task in [*self._tasks, *duties, stop]:
            task.cancel()
        await asyncio.gather(*self._tasks, *duties, return_exceptions=True)
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
        if self._stopping.is_set() or writer.get_extra_info("peername") is None:  # gone before it was accepted
            writer.transport.abort()
            return
        peer = Peer(reader, writer, self._connections, self._settings.chunk)
        self._connections.add(peer)
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.TimeoutError, asyncio.CancelledError):
                await self._serve(peer)
        finally:
            self._connections.remove(peer)
            with contextlib.suppress(asyncio.CancelledError):
                await peer.close()
            self._tasks.discard(task)

    async def _serve(self, peer: Peer) -> None:
        # A peer without a token yet must not hold a connection for long.
        patience = SECONDS_TO_AUTHENTICATE if self._settings.token is not None else None
        try:
            await asyncio.wait_for(peer.first_line(tcp.COMMAND_BYTES), patience)
        except DismissedError as error:
            return await tcp.dismiss(peer, 0, error)
        if is_request(peer.buffer):
            await self._http.serve(peer)
        else:
            await tcp.serve(peer, self._committer, self._settings)
        return None


def _bounded(connections: int) -> int:
    """Ask the system to allow this many connections; return how many it does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connections = max(1, soft - SPARE_FILES)
    return connections


def _explain(failed: asyncio.Future[None]) -> None:
    """Raise what ended a task of the server; an error of the disk as a message."""
    try:
        failed.result()
    except OSError as error:
        raise MidstreamError(
            f"the spool cannot be written: {error}. What was acknowledged is on disk; check the disk, and start again"
        ) from error


def run(settings: ServerSettings, directory: str, *, listening: Report, status: Report) -> None:
    """Serve a spool until SIGINT or SIGTERM; then acknowledge what is on disk, and return."""
    settings.check()
    sys.setswitchinterval(SWITCH)
    writer = SpoolWriter(directory, settings.columns, max_bytes=settings.max_bytes)
    asyncio.run(_run(settings, writer, listening, status))


async def _run(settings: ServerSettings, writer: SpoolWriter, listening: Report, status: Report) -> None:
    committer = Committer(writer, records.of(settings.format, settings.columns, settings.max_record))
    server = Server(committer, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    try:
        await server.run(listening, status)
    finally:
        committer.close()
