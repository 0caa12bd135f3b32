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
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from midstream.bench import machine
from midstream.bench.ingest import (
    Echo,
    Server,
    answered,
    check,
    lines,
)
from midstream.bench.oracle import ResultError
from midstream.bench.record import at_least_one, rendered, save

RECORDS = 10  # that a producer sends at a time
PAUSE = 0.02  # seconds until it sends the next ones
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
    """Measure producers in rounds: undisturbed, then besieged, then the other way round; give the record.

    Promised: the spool is read afterwards, and no figure is printed or written unless what was acknowledged is in it
    exactly once, and nothing else (`ResultError`).
    Not promised: the latencies of other machines. Producers, besiegers and server share this one's cores.
    """
    at_least_one(rounds=rounds, producers=producers, malformed=malformed)
    times: dict[bool, list[float]] = {False: [], True: []}
    answers: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as place:
        spool = os.path.join(place, "spool")
        server = Server(spool)
        senders = [_Producer(server.port, number) for number in range(producers)]
        try:
            _measure(senders, 2.0)  # warm
            for number in range(rounds):
                for besieged in (False, True) if number % 2 == 0 else (True, False):
                    echo(f"round {number + 1} of {rounds}, {'besieged' if besieged else 'undisturbed'}")
                    if besieged:
                        besiegers = _Besiegers(server.port, malformed // rounds, connections, seconds)
                        times[True] += _measure(senders, seconds)
                        for word, count in besiegers.end().items():
                            answers[word] = answers.get(word, 0) + count
                    else:
                        times[False] += _measure(senders, seconds)
        finally:
            for sender in senders:
                sender.close()
            server.end(signal.SIGTERM)
        check(spool, [sender.acknowledged for sender in senders])
    record: dict[str, Any] = {
        "checked": True,
        "malformed": malformed // rounds * rounds,
        "connections": connections,
        "producers": producers,
        "answers": answers,
        "retries": sum(sender.retries for sender in senders),
        **{name: _spread(times[besieged]) for name, besieged in (("undisturbed", False), ("besieged", True))},
        "machine": machine.describe(None),
        "timed_region": TIMED_REGION,
    }
    record["p99_ratio"] = round(record["besieged"]["p99_ms"] / record["undisturbed"]["p99_ms"], 2)
    echo(rendered(_table(record), "What was acknowledged is in the spool exactly once.", f"Timed: {TIMED_REGION}."))
    if json is not None:
        save(record, json)
    return record


class _Producer:
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
                raise ResultError(f"producer {self._number} shall not go on where it was")
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
    """The process of the others."""

    def __init__(self, port: int, malformed: int, connections: int, seconds: float) -> None:
        numbers = map(str, (port, malformed, connections, seconds))
        command = [sys.executable, "-m", "midstream.bench.besiegers", *numbers]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # all have connected

    def end(self) -> dict[str, int]:
        said, _ = self._process.communicate()
        return msgspec.json.decode(said, type=dict[str, int])


def _measure(senders: list[_Producer], seconds: float) -> list[float]:
    """Let all producers send for a time; give the seconds of each answer."""
    end = time.perf_counter() + seconds
    times: list[list[float]] = [[] for _ in senders]
    errors: list[BaseException] = []

    def measure(sender: _Producer, found: list[float]) -> None:
        try:
            sender.measure(end, found)
        except Exception as error:  # told by the thread that waits
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
    for name in ("undisturbed", "besieged"):
        spread = record[name]
        shown = (f"{spread[part]:.1f} ms" for part in ("p50_ms", "p99_ms", "max_ms"))
        table.add_row(name, f"{spread['requests']:,}", *shown)
    table.add_row("ratio", "", "", f"{record['p99_ratio']:.2f}", "")
    return table
