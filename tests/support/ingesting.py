"""A real `midstream ingest` process for tests, and a producer that sends again until all is acknowledged."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from midstream.sources.spools import segments

SOURCE = Path(__file__).parents[2] / "src"
SCHEMA = ("--schema", "n long, s string")


def environment() -> dict[str, str]:
    """The variables of a process that shall run this source."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path}


class Server:
    """A running server, on a port that stays the same when it is started again."""

    def __init__(self, spool: Path, *options: str, files: int | None = None) -> None:
        self.spool, self.port = spool, 0
        self._files = files  # that it may have open
        self.up = threading.Event()
        self._options = options
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "midstream.cli", "ingest", "--to", str(self.spool)]
        if self._files is not None:
            command = ["/bin/sh", "-c", f'ulimit -n {self._files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", *self._options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), self.process.communicate()
        self.port = int(line.split(",")[0].rpartition(":")[2])
        self.up.set()

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal, and give the exit code and what was written to stderr."""
        self.up.clear()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)  # closes the pipes, too
        return self.process.returncode, errors

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def post(self, *lines: str, **headers: str) -> tuple[int, dict[str, Any]]:
        return self.request("POST", "/", "".join(f"{line}\n" for line in lines).encode(), **headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def talk(self, *content: bytes) -> list[str]:
        """Send bytes over a connection, close its sending half, and give the lines of the answer."""
        with self.connect() as sock:
            sock.sendall(b"".join(content))
            sock.shutdown(socket.SHUT_WR)
            return sock.makefile().read().splitlines()

    def rows(self) -> list[dict[str, Any]]:
        return rows(self.spool)

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.spool / segments.DEAD_LETTERS).read_text().splitlines()]


def rows(spool: Path) -> list[dict[str, Any]]:
    there = segments.listing(str(spool))
    batches = segments.read(str(spool), there[0].first, there[-1].end) if there else []
    return [row for batch in batches for row in batch.to_pylist()]


def record(n: int) -> str:
    return json.dumps({"n": n, "s": "x" * 70})


@contextmanager
def served(spool: Path, *options: str, files: int | None = None) -> Iterator[Server]:
    server = Server(spool, *options, files=files)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
        for pipe in (server.process.stdout, server.process.stderr):
            assert pipe is not None
            pipe.close()


class Producer(threading.Thread):
    """Sends numbered records; after every broken connection it asks where to go on."""

    def __init__(self, server: Server, name: str, total: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.progress = threading.Condition()
        self._server, self._id, self._total = server, name, total
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while self.acknowledged < self._total:
                try:
                    self._session()
                except (ConnectionError, TimeoutError):
                    self._server.up.wait(30)
        except BaseException as error:
            self.error = error
        finally:
            with self.progress:
                self.progress.notify_all()

    def wait_for(self, mark: int) -> None:
        """Wait until so many records are acknowledged."""
        with self.progress:
            assert self.progress.wait_for(lambda: self.acknowledged >= mark or self.error, timeout=60)

    def finish(self) -> None:
        """Wait for the end, at which all must be acknowledged."""
        self.join(timeout=120)
        assert self.error is None
        assert self.acknowledged == self._total

    def _session(self) -> None:
        with self._server.connect() as sock, sock.makefile() as answers:
            sock.sendall(f"PRODUCER {self._id}\n".encode())
            word, at = self._answer(answers)
            assert word == "AT"
            assert int(at) >= self.acknowledged, "an acknowledged record is gone"
            self._note(int(at))
            while self.acknowledged < self._total:
                last = min(self.acknowledged + 500, self._total)
                sock.sendall("".join(f"{record(n)}\n" for n in range(self.acknowledged, last)).encode())
                while self.acknowledged < last:
                    word, done = self._answer(answers)
                    assert word == "OK"
                    self._note(int(done))

    def _answer(self, answers: Any) -> list[str]:
        line = answers.readline()
        if not line.endswith("\n"):
            raise ConnectionError
        return line.split()

    def _note(self, acknowledged: int) -> None:
        with self.progress:
            self.acknowledged = acknowledged
            self.progress.notify_all()
