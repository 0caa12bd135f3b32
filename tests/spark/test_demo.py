"""The first thing that a newcomer runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_changes_a_job_and_says_nothing_but_that() -> None:
    command = [sys.executable, "-m", "midstream.cli", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("cut at epoch") == 3
    assert done.stdout.count("the job goes on under the old plan") == 1
    assert done.stdout.rstrip().endswith("4 modifications, the job never stopped")
