"""The machine that a figure was measured on: hardware, versions, and the state of the source tree."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import TYPE_CHECKING, Any

import pyspark

import midstream
from midstream.bench.workbench import available_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def describe(spark: SparkSession | None) -> dict[str, Any]:
    """Return the record of the machine and of what runs on it; without Spark, no Java runs."""
    java = spark._jvm.System.getProperty("java.version") if spark is not None else None  # type: ignore[union-attr]
    return {
        "system": platform.platform(),
        "cores": available_cores(),
        "memory": _memory(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "java": None if java is None else str(java),
        "midstream": midstream.__version__,
        **_git(os.path.dirname(midstream.__file__)),
    }


def _memory() -> int | None:
    """Bytes of memory, where the system reports them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _git(directory: str) -> dict[str, Any]:
    """Commit of the source, and whether the source differs from it; empty outside a checkout.

    An installed copy may lie inside some checkout, as in `.venv`: only files that git tracks count.
    """
    if _run_git(directory, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    return {
        "commit": _run_git(directory, "rev-parse", "HEAD"),
        "dirty": bool(_run_git(directory, "status", "--porcelain", "--", ".")),
    }


def _run_git(directory: str, *arguments: str) -> str | None:
    """The output of a git command; `None` if it failed or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", directory, *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
