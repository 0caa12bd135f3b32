"""Take records in over HTTP with `midstream ingest`, while no job runs; then run one over what has come.

It prints:

    {"accepted":2,"rejected":1,"first":"record 1: Expected `float | null`, got `str` - at `$.degrees`"}
    attic: 2 readings, at most 23.5 degrees
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

import midstream as ms
from midstream.spark.session import local_session

RECORDS = b"""{"room": "attic", "degrees": 21.5}
{"room": "attic", "degrees": "warm"}
{"room": "attic", "degrees": 23.5}
"""


@contextmanager
def ingest(directory: str) -> Iterator[str]:
    """Run the server on a free port, and yield its address."""
    command = [sys.executable, "-m", "midstream.cli", "ingest", "--to", directory, "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--schema", "room string, degrees double"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield server.stdout.readline().decode().split()[2].rstrip(",")  # listening on HOST:PORT, writing to ...
        server.send_signal(signal.SIGTERM)


def main(spark: SparkSession) -> None:
    """Send three records, one of them wrong; then aggregate the others."""
    with tempfile.TemporaryDirectory() as here:
        with ingest(f"{here}/spool") as address, urllib.request.urlopen(f"http://{address}/", RECORDS) as answer:
            print(answer.read().decode().strip())
        out = ms.sinks.memory()
        flow = ms.Flow("rooms")
        rooms = flow.source("readings", ms.sources.spool(f"{here}/spool")).key_by("room")
        rooms.aggregate("warmest", n=ms.count(), degrees=ms.max("degrees")).sink("out", out)
        flow.start(f"{here}/checkpoint", trigger=ms.available_now(), cache=f"{here}/cache").await_termination()
        for row in out.rows():
            print(f"{row.room}: {row.n} readings, at most {row.degrees} degrees")


if __name__ == "__main__":
    main(local_session())
