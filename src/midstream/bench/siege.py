"""Waiting times of producers of `midstream ingest` while others send malformed requests and hold slow connections."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from midstream.bench import machine
from midstream.bench.ingest import Echo, ServerProcess, answered, check, lines
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save

RECORDS = 10  # that a producer sends at a time
PAUSE = 0.02  # seconds until it sends the next ones
UNDISTURBED, BESIEGED = "undisturbed", "besieged"
TIMED_REGION = (
    "from sending ten records to the answer that they are on disk; for a third of the producers with connecting"
)


def run(
    malformed: int = 10_000,
    connections: int = 1_000,
    seconds: float = 30.0,
    rounds: int = 2,
    producers: int = 6,
    json: str | os.PathLike[str] | None = None,
    echo: Echo = print,
) -> dict[str, Any]:
    """Measure producers in rounds: undisturbed, then besieged, then the other way round; return the record.

    Promised: the spool is read afterwards, and no figure is printed or written unless what was acknowledged is in it
    exactly once, and nothing else (`ResultError`).
    Not promised: the latencies of other machines. Producers, besiegers and server share this one's cores.
    """
    at_least_one(rounds=rounds, producers=producers, malformed=malformed)
    siege = _Siege(malformed // rounds, connections, seconds)
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as place:
        spool = os.path.join(place, "spool")
        server = ServerProcess(spool)
        senders = [_Sender(server.port, number) for number in range(producers)]
        try:
            _measure(senders, 2.0)  # warm
            times, answers = _rounds(senders, server.port, siege, rounds, echo)
        finally:
            for sender in senders:
                sender.close()
            server.end(signal.SIGTERM)
        check(spool, [sender.acknowledged for sender in senders])
    record: dict[str, Any] = {
        "checked": True,
        "malformed": siege.malformed * rounds,
        "connections": connections,
        "producers": producers,
        "answers": dict(answers),
        "retries": sum(sender.retries for sender in senders),
        **{name: _spread(found) for name, found in times.items()},
        "machine": machine.describe(None),
        "timed_region": TIMED_REGION,
    }
    record["p99_ratio"] = round(record["besieged"]["p99_ms"] / record["undisturbed"]["p99_ms"], 2)
    echo(rendered(_table(record), "What was acknowledged is in the spool exactly once.", f"Timed: {TIMED_REGION}."))
    if json is not None:
        save(record, json)
    return record


@dataclass(frozen=True, slots=True)
class _Siege:
    """What besiegers do in a round."""

    malformed: int
    connections: int
    seconds: float


def _rounds(
    senders: list[_Sender], port: int, siege: _Siege, rounds: int, echo: Echo
) -> tuple[dict[str, list[float]], Counter[str]]:
    """Measure producers by themselves and besieged, in turn; return their times, and how besiegers were answered."""
    times: dict[str, list[float]] = {UNDISTURBED: [], BESIEGED: []}
    answers = Counter[str]()
    for number in range(rounds):
        for name in (UNDISTURBED, BESIEGED) if number % 2 == 0 else (BESIEGED, UNDISTURBED):
            echo(f"round {number + 1} of {rounds}, {name}")
            besiegers = _Besiegers(port, siege) if name == BESIEGED else None
            times[name] += _measure(senders, siege.seconds)
            if besiegers is not None:
                answers.update(besiegers.end())
    return times, answers


class _Sender:
    """Sends its records a few at a time, over TCP, over one connection of HTTP, or over a new one each time."""

    def __init__(self, port: int, number: int) -> None:
        self.acknowledged = self.retries = 0
        self._port, self._number = port, number
        self._send = (self._tcp, self._http, self._http_anew)[number % 3]
        self._socket: socket.socket | None = None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def measure(self, end: float, times: list[float]) -> None:
        """Send until the time is up."""
        while time.perf_counter() < end:
            began = time.perf_counter()
            try:
                self._send(lines(self._number, self.acknowledged, self.acknowledged + RECORDS))
                self.acknowledged += RECORDS
            except (ConnectionError, http.client.HTTPException):
                self.close()
                self.retries += 1  # stored once, however often it is sent
                continue
            times.append(time.perf_counter() - began)
            time.sleep(PAUSE)

    def close(self) -> None:
        """Hang up; the next records go over a new connection."""
        self._connection.close()
        if self._socket is not None:
            self._answers.close()
            self._socket.close()
            self._socket = None

    def _tcp(self, content: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            self._answers = self._socket.makefile()
            self._socket.sendall(f"PRODUCER p{self._number}\n".encode())
            if answered(self._answers, "AT") != self.acknowledged:
                raise ResultError(f"the server asks producer {self._number} to continue elsewhere than it stopped")
        self._socket.sendall(content)
        while answered(self._answers, "OK") < self.acknowledged + RECORDS:
            continue

    def _http(self, content: bytes) -> None:
        headers = {"Midstream-Producer": f"p{self._number}", "Midstream-Sequence": str(self.acknowledged)}
        self._connection.request("POST", "/", content, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != http.HTTPStatus.OK:
            raise ResultError(f"the server answered {response.status} {answer!r} to records that are in order")

    def _http_anew(self, content: bytes) -> None:
        self._http(content)
        self._connection.close()


class _Besiegers:
    """The process of the besiegers."""

    def __init__(self, port: int, siege: _Siege) -> None:
        numbers = map(str, (port, siege.malformed, siege.connections, siege.seconds))
        command = [sys.executable, "-m", "midstream.bench.besiegers", *numbers]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # all have connected

    def end(self) -> dict[str, int]:
        said, _ = self._process.communicate()
        return msgspec.json.decode(said, type=dict[str, int])


def _measure(senders: list[_Sender], seconds: float) -> list[float]:
    """Let all producers send for a time; return the seconds of each answer."""
    end = time.perf_counter() + seconds
    times: list[list[float]] = [[] for _ in senders]
    errors: list[BaseException] = []

    def measure(sender: _Sender, found: list[float]) -> None:
        try:
            sender.measure(end, found)
        except Exception as error:  # reported by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=measure, args=both) for both in zip(senders, times, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [second for found in times for second in found]


def _spread(times: list[float]) -> dict[str, float]:
    p50, p99, most = (round(float(np.percentile(times, part)) * 1000, 2) for part in (50, 99, 100))
    return {"requests": len(times), "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def _table(record: dict[str, Any]) -> Table:
    title = f"ingest: {record['malformed']:,} malformed requests, {record['connections']:,} slow or idle connections"
    table = Table(title=title, title_justify="left")
    for heading in ("", "requests", "p50", "p99", "most"):
        table.add_column(heading, justify="right")
    for name in (UNDISTURBED, BESIEGED):
        spread = record[name]
        shown = (f"{spread[part]:.1f} ms" for part in ("p50_ms", "p99_ms", "max_ms"))
        table.add_row(name, f"{spread['requests']:,}", *shown)
    table.add_row("ratio", "", "", f"{record['p99_ratio']:.2f}", "")
    return table
