"""Records per second that `midstream ingest` acknowledges on this machine, with or without being killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np
from rich.table import Table

from midstream.bench import machine
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save
from midstream.errors import MidstreamError
from midstream.sources.spools import segments

Echo = Callable[[str], object]
RECORD_BYTES = 100
BLOCK = 1000  # records that a producer sends before it waits for their acknowledgement
SCHEMA = "producer int, n long, padding string"
TIMED_REGION = "from the first byte sent to the last acknowledgement received; restarts after kills included"


def run(
    records: int = 1_000_000,
    producers: int = 4,
    kills: int = 0,
    json: str | os.PathLike[str] | None = None,
    echo: Echo = print,
) -> dict[str, Any]:
    """Send records of 100 bytes over TCP, each acknowledged after the sync; return the record.

    Promised: the spool is read afterwards, and no figure is printed or written unless every record is in it exactly
    once, in the order of its producer (`ResultError`).
    Not promised: the rate of other machines. Producers and server share this one's cores.
    """
    at_least_one(records=records, producers=producers)
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as place:
        spool = os.path.join(place, "spool")
        server = ServerProcess(spool)
        try:
            seconds = _send(server, records // producers, producers, kills, echo)
        finally:
            server.end(signal.SIGTERM)
        check(spool, [records // producers] * producers)
    total = records // producers * producers
    record = {
        "checked": True,
        "records": total,
        "record_bytes": RECORD_BYTES,
        "producers": producers,
        "kills": kills,
        "seconds": round(seconds, 3),
        "records_per_second": round(total / seconds),
        "machine": machine.describe(None),
        "timed_region": TIMED_REGION,
    }
    echo(rendered(_table(record), "Every record is in the spool exactly once.", f"Timed: {TIMED_REGION}."))
    if json is not None:
        save(record, json)
    return record


class ServerProcess:
    """The server in a process of its own, on a port that stays the same when it is started again."""

    def __init__(self, spool: str) -> None:
        self.port = 0
        self._spool = spool
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "midstream.cli", "ingest", "--to", self._spool, "--schema", SCHEMA]
        self._process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MidstreamError("the server did not start; its message is above")
        self.port = int(line.split(",")[0].rpartition(":")[2])

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it is gone."""
        self._process.send_signal(number)
        self._process.communicate()


def _send(server: ServerProcess, each: int, producers: int, kills: int, echo: Echo) -> float:
    """Let all producers send, kill the server at random points of the first one's progress, and return the seconds."""
    echo(f"{producers} producers send {each:,} records each" + (f"; {kills} kills" if kills else ""))
    senders = [_Producer(server, number, each) for number in range(producers)]
    began = time.perf_counter()
    for sender in senders:
        sender.start()
    for mark in sorted(random.Random(kills).sample(range(1, each), kills)):
        senders[0].wait_for(mark)
        server.end(signal.SIGKILL)
        server.start()
    for sender in senders:
        sender.join()
    seconds = time.perf_counter() - began
    for sender in senders:
        if sender.error is not None:
            raise sender.error
    return seconds


class _Producer(threading.Thread):
    """Sends its records in blocks, and after a broken connection goes on where the server says."""

    def __init__(self, server: ServerProcess, number: int, total: int) -> None:
        super().__init__(daemon=True)
        self.error: Exception | None = None
        self._server, self._number, self._total = server, number, total
        self._acknowledged = 0
        self._moved = threading.Condition()

    def run(self) -> None:
        try:
            while self._acknowledged < self._total:
                try:
                    self._session()
                except ConnectionError:
                    time.sleep(0.01)  # the server is down; leave it the processor
        except Exception as error:  # reported by the thread that waits
            self.error = error
            self._note(self._total)

    def wait_for(self, mark: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._acknowledged >= mark)

    def _session(self) -> None:
        with socket.create_connection(("127.0.0.1", self._server.port)) as sock, sock.makefile() as answers:
            sock.sendall(f"PRODUCER p{self._number}\n".encode())
            at = answered(answers, "AT")
            if at < self._acknowledged:
                raise ResultError(f"record {at} was acknowledged, but is gone")
            self._note(at)
            while self._acknowledged < self._total:
                last = min(self._acknowledged + BLOCK, self._total)
                sock.sendall(lines(self._number, self._acknowledged, last))
                while self._acknowledged < last:
                    self._note(answered(answers, "OK"))

    def _note(self, acknowledged: int) -> None:
        with self._moved:
            self._acknowledged = acknowledged
            self._moved.notify_all()


def lines(producer: int, first: int, last: int) -> bytes:
    """Records as lines of JSON, each of 100 bytes with its newline."""
    lines = (f'{{"producer":{producer},"n":{n},"padding":"' for n in range(first, last))
    return "".join(line + "x" * (RECORD_BYTES - 3 - len(line)) + '"}\n' for line in lines).encode()


def answered(answers: IO[str], wanted: str) -> int:
    """Return the number in the next answer over TCP, which must begin with a word."""
    line = answers.readline()
    if not line.endswith("\n"):
        raise ConnectionError
    word, number = line.split(maxsplit=1)
    if word != wanted:
        raise ResultError(f"the server answered {line.strip()!r} instead of {wanted}")
    return int(number)


def check(spool: str, sent: Sequence[int]) -> None:
    """Compare the spool with what producers sent: all of it, in order, and nothing else."""
    end = segments.listing(spool)[-1].end
    batches = list(segments.read(spool, 0, end))
    owner = np.concatenate([batch.column("producer").to_numpy() for batch in batches])
    numbers = np.concatenate([batch.column("n").to_numpy() for batch in batches])
    for producer, each in enumerate(sent):
        found = numbers[owner == producer]
        if not np.array_equal(found, np.arange(each)):
            raise ResultError(f"producer {producer}: {len(found):,} records, not {each:,} in order; no time is printed")
    if len(owner) != sum(sent):
        raise ResultError(f"{len(owner) - sum(sent)} records that no producer sent; no time is printed")


def _table(record: dict[str, Any]) -> Table:
    table = Table(title=f"ingest: records of {RECORD_BYTES} bytes over TCP", title_justify="left")
    for heading in ("records", "producers", "kills", "seconds", "records/s"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{record['records']:,}", str(record["producers"]), str(record["kills"]),
        f"{record['seconds']:.1f}", f"{record['records_per_second']:,}",
    )  # fmt: skip
    return table
