"""Drivers that are killed, for real, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Dead(NamedTuple):
    """A driver that was killed."""

    root: str  # the directory of its job
    printed: str


def killed(program: str, root: str, *arguments: str) -> Dead:
    """Run a driver until it kills itself."""
    command = [sys.executable, "-m", program, root, *arguments]
    repository = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -9, ended.stderr
    return Dead(root, ended.stdout)
