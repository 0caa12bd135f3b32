"""The other end of a connection, over a real socket: what it sends is taken in any pieces, and it goes when it must."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.ingest.peer import DismissedError, Peer


class Host:
    """Who has let the peer in: notes what it is told."""

    def __init__(self, idle: float = 30.0) -> None:
        self.idle = idle
        self.told: list[tuple[str, Any]] = []

    def moved(self, peer: Peer, stored: bool) -> None:
        self.told.append(("moved", stored))

    def hold(self, peer: Peer, size: int) -> None:
        self.told.append(("hold", size))


Client = asyncio.StreamWriter
Talk = Callable[[Peer, Client], Awaitable[Any]]


def connected(talk: Talk, host: Host | None = None, chunk: int = 1 << 16) -> Any:
    """Let a peer and its client talk."""

    async def run() -> Any:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = loop.create_future()
        server = await asyncio.start_server(lambda *ends: accepted.set_result(ends), "127.0.0.1", 0)
        answers, client = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        client.answers = answers  # type: ignore[attr-defined]
        reader, writer = await accepted
        try:
            return await asyncio.wait_for(talk(Peer(reader, writer, host or Host(), chunk), client), 30)
        finally:
            for each in (client, writer):
                each.transport.abort()
            server.close()

    return asyncio.run(run())


def sent(content: bytes, client: Client) -> None:
    client.write(content)
    client.write_eof()


@settings(max_examples=15)
@given(st.binary(max_size=60), st.integers(1, 7), st.lists(st.integers(0, 20), max_size=4))
def test_bytes_are_taken_as_they_were_sent_whatever_their_pieces(content: bytes, chunk: int, sizes: list[int]) -> None:
    async def talk(peer: Peer, client: Client) -> list[bytes | None]:
        sent(content, client)
        found = [await peer.exactly(size) for size in sizes]
        while await peer.more():
            pass
        return [*found, peer.take()]

    *parts, rest = connected(talk, chunk=chunk)
    at = 0
    for size, part in zip(sizes, parts, strict=True):
        if at + size > len(content):
            assert part is None
            return
        assert part == content[at : at + size]
        at += size
    assert rest == content[at:]


@pytest.mark.parametrize(
    ("content", "limit", "line", "rest"),
    [
        (b"one\ntwo\n", 10, b"one", b"two\n"),
        (b"one\r\ntwo", 10, b"one", b"two"),
        (b"\nrest", 10, b"", b"rest"),
        (b"one", 10, None, b"one"),
        (b"", 10, None, b""),
        (b"0123456789\nrest", 10, b"0123456789", b"rest"),
        (b"0123456789a\nrest", 10, None, b"0123456789a\nrest"),
        (b"0123456789abcdef", 10, None, b"0123456789abcdef"),
    ],
)
def test_a_line_is_looked_at_before_it_is_taken_and_has_a_limit(
    content: bytes, limit: int, line: bytes | None, rest: bytes
) -> None:
    async def talk(peer: Peer, client: Client) -> tuple[Any, ...]:
        sent(content, client)
        seen = await peer.first_line(limit), await peer.first_line(limit)
        taken = await peer.line(limit)
        while await peer.more():
            pass
        return *seen, taken, peer.take()

    assert connected(talk) == (line, line, line, rest)


def test_a_part_of_what_is_buffered_may_be_taken() -> None:
    async def talk(peer: Peer, client: Client) -> tuple[bytes, bytes, bytes]:
        sent(b"abcdef", client)
        while await peer.more():
            pass
        return peer.take(2), peer.take(), peer.take()

    assert connected(talk) == (b"ab", b"cdef", b"")


def test_its_host_is_told_what_it_holds_and_what_it_finished() -> None:
    host = Host()

    async def talk(peer: Peer, client: Client) -> tuple[Any, ...]:
        before = (peer.unfinished, peer.age())
        sent(b"abc", client)
        while await peer.more():
            pass
        during = peer.unfinished
        peer.finished(2, stored=True)
        after = peer.unfinished
        peer.finished()
        return before, during, after, peer.unfinished

    assert connected(talk, host) == ((False, 0.0), True, True, False)
    assert host.told == [("hold", 3), ("hold", 2), ("moved", True), ("hold", 0), ("moved", False)]


# --- it must go -----------------------------------------------------------------------------------------------------


def test_who_sends_nothing_for_the_idle_time_is_dismissed() -> None:
    async def talk(peer: Peer, client: Client) -> None:
        await peer.more()

    with pytest.raises(DismissedError, match="nothing came for too long"):
        connected(talk, Host(idle=0.02))


def test_who_begins_and_does_not_finish_is_dismissed_though_it_sends() -> None:
    async def talk(peer: Peer, client: Client) -> None:
        async def drip() -> None:
            while True:
                client.write(b"x")
                await asyncio.sleep(0.005)

        dripping = asyncio.ensure_future(drip())
        try:
            while await peer.more():
                pass
        finally:
            dripping.cancel()

    with pytest.raises(DismissedError, match="it took too long to arrive"):
        connected(talk, Host(idle=0.3))


def test_who_is_told_to_go_is_told_why_and_nothing_more_is_read() -> None:
    async def talk(peer: Peer, client: Client) -> None:
        client.write(b"abc")
        assert await peer.exactly(3) == b"abc"
        peer.dismiss("others need the place")
        peer.dismiss("told before")
        client.write(b"more")
        assert not peer.stopping
        with pytest.raises(DismissedError, match="others need the place"):
            await peer.ended()
        await peer.more()

    with pytest.raises(DismissedError, match="others need the place"):
        connected(talk)


def test_a_server_that_stops_looks_like_a_peer_that_has_closed() -> None:
    async def talk(peer: Peer, client: Client) -> tuple[Any, ...]:
        client.write(b"abc")
        assert await peer.exactly(3) == b"abc"
        peer.dismiss("")
        client.write(b"more\n")
        await peer.ended()
        return peer.stopping, await peer.more(), await peer.line(10), await peer.exactly(4)

    assert connected(talk) == (True, False, None, None)


def test_a_connection_that_breaks_looks_like_one_that_has_closed() -> None:
    async def talk(peer: Peer, client: Client) -> bool:
        client.transport.abort()
        return await peer.more()

    assert connected(talk) is False


def test_while_it_is_served_it_is_busy_also_if_that_fails() -> None:
    async def talk(peer: Peer, client: Client) -> list[bool]:
        seen = [peer.busy]

        def fail() -> None:
            with peer.served():
                seen.append(peer.busy)
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fail()
        return [*seen, peer.busy]

    assert connected(talk) == [False, True, False]


# --- answers --------------------------------------------------------------------------------------------------------


def test_lines_are_sent_before_it_is_hung_up() -> None:
    async def talk(peer: Peer, client: Any) -> bytes:
        await peer.send("OK 1", "ERR 2 größer")
        await peer.send_bytes(b"\x00")
        await peer.close()
        return bytes(await client.answers.read())

    assert connected(talk) == "OK 1\nERR 2 größer\n\0".encode()


def test_who_does_not_read_its_answers_is_not_waited_for_for_ever() -> None:
    async def talk(peer: Peer, client: Any) -> None:
        client.transport.pause_reading()
        while True:
            await peer.send_bytes(b"x" * (1 << 20))

    with pytest.raises(asyncio.TimeoutError):
        connected(talk, Host(idle=0.05))


def test_it_is_named_by_its_address() -> None:
    async def talk(peer: Peer, client: Client) -> tuple[str, str, int]:
        return peer.address, peer.name, client.get_extra_info("sockname")[1]

    address, name, port = connected(talk)
    assert (address, name) == ("127.0.0.1", f"127.0.0.1:{port}")
