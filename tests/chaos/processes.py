"""The processes of the chaos run: the driver, which is talked to in lines of JSON, and what it and a cluster start."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import psutil

REPOSITORY = Path(__file__).parents[2]
DRIVER, JVM, DAEMON, WORKER, EXECUTOR = "driver", "jvm", "daemon", "worker", "executor"
FATAL = (DRIVER, JVM)  # the job ends with these, and must be started again


class DriverProcess:
    """A driver that runs, or has run."""

    def __init__(self, told: dict[str, Any], log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.driver"], cwd=REPOSITORY, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        self.java = 0
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=[self._process.stdout], daemon=True).start()
        self.tell(told)

    def _read(self, output: IO[str]) -> None:
        for line in output:
            if line.startswith("{") and line.endswith("}\n"):  # one that is killed may not finish its line
                self.said.put(json.loads(line))
        self.said.put({"gone": self._process.wait()})

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, told: dict[str, Any]) -> None:
        """Send a command; one that is gone does not hear it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def end(self) -> None:
        """Kill it and its Java, at the end of a run."""
        for process in (self.pid, self.java):
            if process and psutil.pid_exists(process):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def targets(self, kind: str, cluster: list[int]) -> list[int]:
        """The processes of a kind; `cluster` are those of Spark's master and workers, if there are any."""
        if kind == DRIVER:
            return [self.pid]
        if kind == JVM:
            return [self.java] if self.java else []
        found = [process for root in (cluster or [self.java]) for process in _below(root)]
        if kind == EXECUTOR:
            return [p.pid for p in found if "CoarseGrainedExecutorBackend" in _command(p)]
        pythons = {p.pid: p for p in found if "pyspark.daemon" in _command(p)}
        children = [pid for pid, p in pythons.items() if _parent(p) in pythons]
        return [pid for pid in pythons if (pid in children) == (kind == WORKER)]


def is_gone(process: int) -> bool:
    """Whether a process has ended."""
    try:
        return bool(psutil.Process(process).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _below(root: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(root).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0
