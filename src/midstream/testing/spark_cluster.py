"""A real Spark cluster on this machine, for tests and for trying things out: master and workers of the pip package.

    with cluster(workers=2) as running:
        spark = running.session()
        ...
        running.kill_worker(0)

Everything listens on loopback only, asks for a secret of its own, and is gone at the end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.errors import MidstreamError
from midstream.spark.java import require_java
from midstream.spark.session import QUICK_LOGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 60.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a Java that does little, or runs briefly
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@dataclass(slots=True)
class Cluster:
    """A running cluster; `cluster` makes one."""

    directory: str
    cores: int
    memory: str
    url: str = ""
    _master: subprocess.Popen[bytes] | None = None
    _workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started: int = 0
    _session: SparkSession | None = None
    _secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def workers(self) -> list[int]:
        """The numbers of the living workers."""
        return [number for number, process in self._workers.items() if process.poll() is None]

    @property
    def processes(self) -> list[int]:
        """The process groups of the master and the living workers: what to kill where `stop` is not called."""
        masters = [self._master.pid] if self._master is not None else []
        return [*masters, *(self._workers[number].pid for number in self.workers)]

    def session(self, **settings: str) -> SparkSession:
        """Return a session on the cluster, made on the first call; a setting's dots are written as two underscores."""
        from pyspark.sql import SparkSession

        if self._session is None:
            builder = SparkSession.builder.master(self.url).appName("midstream-cluster")
            chosen = {
                "spark.ui.enabled": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.python.unix.domain.socket.enabled": "true",
                **QUICK_LOGS,
                "spark.sql.session.timeZone": "UTC",
                "spark.executor.memory": self.memory,
                "spark.authenticate": "true",
                "spark.authenticate.secret": self._secret,
                "spark.cores.max": "1000",
                "spark.locality.wait": "10s",  # a slot waits for its executor, which has its state; for a lost one too
                **{name.replace("__", "."): value for name, value in settings.items()},
            }
            for name, value in chosen.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
            self._session.sparkContext.pythonExec = sys.executable
        return self._session

    def add_worker(self) -> int:
        """Start one more worker and wait until the master knows it; return its number."""
        number, self._started = self._started, self._started + 1
        place = os.path.join(self.directory, f"worker-{number}")
        os.makedirs(place)
        options = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", place, "--webui-port", "0"]
        log = f"worker-{number}.log"
        self._workers[number] = self._run(_WORKER, [*options, "--host", "127.0.0.1", self.url], log, place)
        self._await(self._workers[number], log, "Successfully registered with master")
        return number

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors with SIGKILL, as if its machine had lost power."""
        process = self._workers.pop(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start(self, workers: int) -> None:
        """Start the master and workers."""
        self.url = f"spark://127.0.0.1:{_free_port()}"
        port = self.url.rsplit(":", 1)[1]
        with open(os.open(self._properties, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"spark.authenticate true\nspark.authenticate.secret {self._secret}\n")
        options = ["--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
        self._master = self._run(_MASTER, options, "master.log", self.directory)
        self._await(self._master, "master.log", "New state: ALIVE")
        for _ in range(workers):
            self.add_worker()

    def stop(self) -> None:
        """End the session, the workers and the master."""
        if self._session is not None:
            self._session.stop()
        for number in list(self._workers):
            self.kill_worker(number)
        if self._master is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._master.pid, signal.SIGKILL)
            self._master.wait()

    @property
    def _properties(self) -> str:
        return os.path.join(self.directory, "cluster.properties")

    def _run(self, name: str, options: list[str], log: str, place: str) -> subprocess.Popen[bytes]:
        import pyspark

        import midstream

        home = os.path.dirname(pyspark.__file__)
        package = os.path.dirname(os.path.dirname(midstream.__file__))
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_DIRS": place,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} {os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}",
            "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")])),
        }
        with open(os.path.join(self.directory, log), "wb") as out:
            return subprocess.Popen(
                [os.path.join(home, "bin", "spark-class"), name, "--properties-file", self._properties, *options],
                env=environment, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,  # so that a worker is killed with its executors
            )  # fmt: skip

    def _await(self, process: subprocess.Popen[bytes], log: str, text: str) -> None:
        path, end = Path(self.directory, log), time.monotonic() + _SECONDS
        while text not in path.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > end:
                raise MidstreamError(f"Spark's {log.split('.')[0]} did not start:\n{path.read_text()[-2000:]}")
            time.sleep(0.05)  # there is no way to wait for a log


@contextlib.contextmanager
def cluster(workers: int = 2, *, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """Run Spark's own standalone master and workers, from the pip package, on loopback.

    Promised: real processes, each worker with a directory of its own; all are ended, and their files deleted, when
    the block is left. Not promised: a second session of Spark in this process beside the one on the cluster.

    Args:
        workers: how many to begin with.
        cores: of each worker.
        memory: of each worker, and of its one executor.
    """
    require_java()
    running = Cluster(tempfile.mkdtemp(prefix="midstream-cluster-"), cores, memory)
    try:
        running.start(workers)
        yield running
    finally:
        running.stop()
        shutil.rmtree(running.directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
