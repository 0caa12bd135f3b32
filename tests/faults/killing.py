"""Drivers that are killed, for real, in a process of their own: starting Java is what costs, so each has many jobs.

A program here is a module with `doomed(spark, root, parameters, arrive)`: it runs a job to the end of its input, and
calls `arrive(where)` when the job is where it must die, which never returns. Once all jobs are there, the driver dies.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

Arrive = Callable[[str], NoReturn]


class Dead(NamedTuple):
    """A job whose driver was killed."""

    root: str  # its directory
    arrived: str  # where it was, by its own word; empty if the driver died of itself


def killed(program: str, directory: Path, cases: Sequence[Sequence[str]]) -> list[Dead]:
    """Run a job for each case, all in one driver, until it is killed."""
    roots = [directory / str(number) for number in range(len(cases))]
    for root in roots:
        root.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.faults.killing",
        program,
        str(directory),
        json.dumps(list(map(list, cases))),
    ]
    repository = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    said = {int(number): where for number, where in (line.split(" ", 1) for line in ended.stdout.splitlines())}
    return [Dead(str(root), said.get(number, "")) for number, root in enumerate(roots)]


class Doomed(threading.Thread):
    """A job of a driver that is to die."""

    def __init__(self, number: int, job: Callable[[Arrive], None]) -> None:
        super().__init__(daemon=True)
        self._number, self._job = number, job
        self.is_there, self.settled = False, threading.Event()

    def run(self) -> None:
        """Run the job until it is where it must die, or to its end."""
        try:
            self._job(self.arrive)
        finally:
            self.settled.set()

    def arrive(self, where: str) -> NoReturn:
        """Say where the job is, and go no further."""
        print(self._number, where, flush=True)
        self.is_there = True
        self.settled.set()
        while True:
            threading.Event().wait()


def main(program: str, directory: str, cases: str) -> None:
    """Bring one job after the other to its point, then die with all of them."""
    from tests.support.session import local

    doomed, spark = importlib.import_module(program).doomed, local()
    for number, parameters in enumerate(json.loads(cases)):
        job = Doomed(number, partial(doomed, spark, os.path.join(directory, str(number)), parameters))
        job.start()
        job.settled.wait()
        if not job.is_there:
            sys.exit(f"the job of {parameters} ended before it was where it must die")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
