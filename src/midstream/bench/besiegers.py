"""Unwanted peers of `midstream ingest`: malformed requests, and connections that are idle or very slow.

Run as a process of its own, `python -m midstream.bench.besiegers PORT MALFORMED CONNECTIONS SECONDS`, so that it does
not take time from the measurement. Prints a line when all have connected, and at its end a line of JSON.
"""

from __future__ import annotations

import asyncio
import collections
import random
import sys

import msgspec

_POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
_HIDDEN = _POST + b"Content-Length: 8\r\n\r\n{}\n{}\n{}"
MALFORMED = (
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(_HIDDEN) + _HIDDEN,
    _POST + b"Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + _HIDDEN,
    _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + _HIDDEN,
    _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    _POST + b"Content-Length: -1\r\n\r\n{}\n",
    _POST + b"Content-Length: 999999999999\r\n\r\n{}\n",
    _POST + b"Content-Length: 900\r\n\r\n{}\n",
    _POST + b"no colon\r\n\r\n",
    _POST + b"A: " + b"x" * 20_000 + b"\r\n\r\n",
    b"POST  / HTTP/9.9\r\n\r\n{}\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"PRODUCER no such name!\n{}\n",
    b"nonsense\n" * 20,
    b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x00" * 64,
    b"half a line",
    b"",
)
# {what is sent at once: what is sent again and again after it, a byte a second}
SLOW = {
    b"": b"",
    b"POST / HT": b"",
    _POST + b"X-A: ": b"x",
    _POST + b"Content-Length: 1000000\r\n\r\n": b"x",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n": b"x",
    b'{"producer": ': b" ",
    b"PRODUCER slow\n": b"",
}


class Besiegers:
    """Connect again and again until told to stop."""

    def __init__(self, port: int, malformed: int, connections: int, seconds: float) -> None:
        self._port, self._malformed, self._connections, self._seconds = port, malformed, connections, seconds
        self.answers: collections.Counter[str] = collections.Counter()
        self._there, self._all = 0, asyncio.Event()

    async def run(self) -> dict[str, int]:
        """Hold connections, and send malformed requests, evenly over the time; return the answers."""
        kinds = list(SLOW.items())
        holding = [
            asyncio.ensure_future(self._hold(*kinds[number % len(kinds)])) for number in range(self._connections)
        ]
        if self._connections:
            await self._all.wait()
        print("connected", flush=True)
        loop = asyncio.get_running_loop()
        began, sending = loop.time(), []
        for number in range(self._malformed):
            await asyncio.sleep(began + self._seconds * number / self._malformed - loop.time())
            sending.append(asyncio.ensure_future(self._send(MALFORMED[number % len(MALFORMED)])))
        await asyncio.sleep(began + self._seconds - loop.time())
        await asyncio.gather(*sending)
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
        return dict(self.answers)

    async def _hold(self, first: bytes, again: bytes) -> None:
        is_first = True
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                self._there += is_first
                is_first = False
                if self._there == self._connections:
                    self._all.set()
                writer.write(first)
                closed = asyncio.ensure_future(reader.read())
                while not closed.done():
                    await asyncio.wait((closed,), timeout=1 if again else None)
                    writer.write(again)
                writer.close()
                closed.result()
            except ConnectionError:
                self.answers["slow ones refused"] += 1
            self.answers["slow ones closed"] += 1
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _send(self, content: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(content)
            if writer.can_write_eof():
                writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            words = answer.split(b" ", 2)
            shown = words[1] if answer.startswith(b"HTTP") else answer[:3].strip() or b"closed"
            self.answers[shown.decode()] += 1
        except (ConnectionError, asyncio.TimeoutError) as error:
            self.answers[type(error).__name__] += 1


if __name__ == "__main__":
    port, malformed, connections = map(int, sys.argv[1:4])
    done = asyncio.run(Besiegers(port, malformed, connections, float(sys.argv[4])).run())
    print(msgspec.json.encode(done).decode(), flush=True)
