"""Exceptions from Spark: the user's error under many lines of text, or one worth another attempt."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from midstream import errors
from midstream.errors import JobError, MidstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = re.compile(r"midstream\.errors\.(\w+): (.*?)(?:\n\s*\n|\n\tat |\Z)", re.DOTALL)
# A traceback of Python, and its last line: the class, which may be one of a function, and what it says. That of a group
# of exceptions is indented behind a bar.
_PYTHON = re.compile(
    r"((?:Exception Group )?Traceback \(most recent call last\):\n.*?\n(?:  \| )?(\w[\w.<>]*(?:: [^\n]*)?))\n",
    re.DOTALL,
)


_FULL = ("No space left on device", "Disk quota exceeded")


class UserCodeError(JobError):
    """An exception in a function of the user."""


class DiskFullError(errors.CheckpointError):
    """A disk that the job writes to is full."""


def explained(error: BaseException, where: str = "") -> BaseException:
    """Turn an exception of a Spark job into an error that a user can act on; `where` says where it was, if known."""
    if isinstance(error, MidstreamError) or not isinstance(error, Exception):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours:
        kind = getattr(errors, ours[1], None)
        if isinstance(kind, type) and issubclass(kind, MidstreamError):
            return kind(ours[2].strip())
    if any(sign in text for sign in _FULL):
        said = next(line.strip() for line in text.splitlines() if any(sign in line for sign in _FULL))
        return DiskFullError(
            "the disk is full. Free some space and start the job again with the same checkpoint; nothing that was "
            f"committed is lost ({said})"
        )
    python = _PYTHON.findall(text + "\n")
    if python:
        return UserCodeError(f"the job's own code failed: {python[-1][1]}{where}\n{python[-1][0]}")
    return JobError(f"the epoch failed: {text.strip() or type(error).__name__}")


def with_free_space(error: BaseException, places: Mapping[str, str]) -> BaseException:
    """Say which disk is full, or may be: the space left where the job writes, least first.

    Args:
        error: as explained.
        places: what is stored there -> path; one that is not on this host is left out.
    """
    if not isinstance(error, DiskFullError):
        return error
    free = {what: shutil.disk_usage(path).free >> 20 for what, path in places.items() if os.path.isdir(path)}
    shown = ", ".join(f"{what} ({places[what]}) {free[what]} MB" for what in sorted(free, key=lambda what: free[what]))
    return DiskFullError(f"{error}. Free on this host: {shown}")


def is_final(error: BaseException, master: str) -> bool:
    """Tell whether running the epoch again would only fail again.

    That holds for what Midstream has diagnosed, and for an exception in the user's code that Spark's own task retries
    have not cured; a plain `local[n]` gives a task one attempt, and what a slot has reported was not retried.
    """
    found = explained(error)
    diagnosed = (errors.SchemaError, errors.StateError, errors.CheckpointError, errors.PlanError, errors.SinkError)
    retried = not isinstance(error, UserCodeError) and not re.fullmatch(r"local(\[[\d*]+\])?", master)
    return isinstance(found, diagnosed) or (retried and isinstance(found, UserCodeError))


def has_lost_spark(spark: SparkSession) -> bool:
    """Tell whether Spark has ended under the job: its Java was killed, or its session stopped.

    Then an error says nothing about the code that ran into it.
    """
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):  # Java does not answer; a context that was stopped has no handle
        return True
