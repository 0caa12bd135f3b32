"""The server: one port for both protocols, and an end that acknowledges what is on disk. As a process: tests/cli."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midstream.errors import MidstreamError, PlanError
from midstream.ingest import server as serving_module
from midstream.ingest.server import _bounded, run
from midstream.ingest.settings import ServerSettings
from tests.support.ingesting import rows
from tests.support.serving import COLUMNS, Serving, served, serving

ONE = b'{"n":1}\n'


@pytest.fixture
def _switching() -> Iterator[None]:
    """Let threads take turns as before: a server that has the process to itself makes them hurry."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_one_port_speaks_both(tmp_path: Path) -> None:
    async def talk(server: Serving) -> list[bytes]:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n" + ONE
        return [await server.said_to(content) for content in (ONE, post, b"", ONE)]

    plain, http, nothing, again = serving(tmp_path, talk)
    assert (plain, http.split(b"\r\n")[0], nothing, again) == (b"OK 1\n", b"HTTP/1.1 200 OK", b"", b"OK 1\n")
    assert len(rows(tmp_path)) == 3


def test_at_the_end_all_connections_are_closed_and_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    async def talk(server: Serving) -> list[bytes]:
        ends = [await server.connect() for _ in range(3)]
        for reader, writer in ends:
            writer.write(ONE)
            assert await reader.readline() == b"OK 1\n"
        await server.stop()
        rest = [await asyncio.wait_for(reader.read(), 30) for reader, _ in ends]
        for _, writer in ends:
            writer.close()
        return rest

    assert serving(tmp_path, talk) == [b"", b"", b""]
    assert len(rows(tmp_path)) == 3


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async def talk(server: Serving) -> None:
        async with served(tmp_path / "other", port=server.port):
            raise AssertionError("it listens")

    with pytest.raises(MidstreamError, match=r"cannot listen on 127\.0\.0\.1:\d+: .*Choose another port"):
        serving(tmp_path / "one", talk)


def test_a_broken_disk_ends_it_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def talk(server: Serving) -> None:
        monkeypatch.setattr("midstream.checkpoint.storage.os.fsync", broken)
        assert await server.said_to(ONE) == b""
        await server.stop()

    with pytest.raises(MidstreamError, match=r"the spool cannot be written: .*What was acknowledged is on disk"):
        serving(tmp_path, talk)


def test_beyond_the_most_connections_the_idle_one_is_closed(tmp_path: Path) -> None:
    async def talk(server: Serving) -> tuple[bytes, bytes]:
        idle, held = await server.connect()
        while not len(server.server._connections):
            await asyncio.sleep(0.001)
        said = await server.said_to(ONE)
        rest = await asyncio.wait_for(idle.read(), 30)
        held.close()
        return said, rest

    assert serving(tmp_path, talk, max_connections=1) == (b"OK 1\n", b"")


def test_who_has_no_token_must_say_so_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "SECONDS_TO_AUTHENTICATE", 0.02)

    async def talk(server: Serving) -> bytes:
        reader, writer = await server.connect()
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return said

    assert serving(tmp_path, talk, token=b"0123456789abcdef") == b""


def test_it_tells_how_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "STATUS_EVERY", 0.01)
    told: list[str] = []

    async def talk(server: Serving) -> None:
        await server.said_to(ONE + b"nonsense\n")
        telling = asyncio.ensure_future(server.server._tell(told.append))
        while not told:
            await asyncio.sleep(0.005)
        telling.cancel()

    serving(tmp_path, talk)
    assert told[0].startswith("1 records, ")
    assert ", 1 refused, 0% of the disk bound, 0 connections" in told[0]


@pytest.mark.usefixtures("_switching")
def test_a_signal_ends_it_and_the_spool_can_be_served_again(tmp_path: Path) -> None:
    settings, heard = ServerSettings("127.0.0.1", 0, "json", COLUMNS), list[str]()

    def listening(where: str) -> None:
        heard.append(where)
        threading.Thread(target=lambda: (time.sleep(0.02), os.kill(os.getpid(), signal.SIGTERM))).start()

    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        run(settings, str(tmp_path), listening=listening, status=lambda text: None)
    assert [where.rpartition(":")[0] for where in heard] == ["127.0.0.1"] * 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_settings_that_cannot_work_leave_no_spool(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not known"):
        run(ServerSettings("127.0.0.1", 0, "xml"), str(tmp_path / "spool"), listening=print, status=print)
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "found", "raised"),
    [
        (10_000, 20_000, 1_000, 1_000, 10_000),
        (1_024, 20_000, 1_000, 1_000, 1_256),
        (1_024, 1_100, 1_000, 844, 1_100),
        (200, 200, 1_000, 1, 200),
        (1_024, resource.RLIM_INFINITY, 5_000, 5_000, 5_256),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 5_000, 5_000, resource.RLIM_INFINITY),
    ],
)
def test_the_system_is_asked_for_as_many_files_as_it_gives(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, asked: int, found: int, raised: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: limits.append(new))
    assert _bounded(asked) == found
    assert limits[-1] == (raised, hard)
