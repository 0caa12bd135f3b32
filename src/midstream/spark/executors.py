"""The executor that a task runs on: tasks of one share a cache."""

from __future__ import annotations

import os
from functools import lru_cache

_ANCESTORS = 8


def here() -> str:
    """Name the executor of this process as Spark does; every task of an executor returns the same name."""
    return _executor(os.getpid())


@lru_cache(maxsize=1)
def _executor(pid: int) -> str:
    """Return the id that is on an executor's command line, on every cluster manager; its Python is its child."""
    if "SPARK_EXECUTOR_ID" in os.environ:
        return os.environ["SPARK_EXECUTOR_ID"]
    for _ in range(_ANCESTORS):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
            if b"--executor-id" in arguments:
                return arguments[arguments.index(b"--executor-id") + 1].decode()
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rsplit(")", 1)[1].split()[1])
        except FileNotFoundError:
            break
    return os.path.basename(os.getcwd())  # not Linux: the directory that Spark gives an executor ends with its id
