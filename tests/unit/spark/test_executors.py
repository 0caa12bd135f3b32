"""The executor that a process belongs to: all its tasks give one name, those of others another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midstream.spark import executors

SOURCE = str(Path(__file__).parents[3] / "src")
ASK = "from midstream.spark.executors import here; print(here(), here() == here())"


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process asks once; here several are played."""
    monkeypatch.delenv("SPARK_EXECUTOR_ID", raising=False)
    executors._executor.cache_clear()


def asked_below(directory: Path, generations: int, *arguments: str, between: str = sys.executable) -> str:
    """What a process says that is so many generations below one with these arguments, as Spark starts an executor."""
    command = [sys.executable, "-c", ASK]
    for generation in range(generations):
        run = f"import subprocess; raise SystemExit(subprocess.run({command!r}).returncode)"
        command = [between, "-S", "-c", run, *(arguments if generation == generations - 1 else ())]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_EXECUTOR_ID"}
    done = subprocess.run(
        command, env=environment | {"PYTHONPATH": SOURCE}, capture_output=True, text=True, cwd=directory, check=True
    )
    return done.stdout.strip()


def test_the_variable_of_a_container_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_EXECUTOR_ID", "12")
    assert executors.here() == "12"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc to look into")
def test_the_command_line_of_the_executor_above_names_it(tmp_path: Path) -> None:
    assert asked_below(tmp_path, 2, "--driver-url", "spark://x", "--executor-id", "7", "--cores", "2") == "7 True"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc to look into")
def test_a_process_between_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "py) R 1 (x").symlink_to(os.path.realpath(sys.executable))
    assert asked_below(tmp_path, 2, "--executor-id", "9", between=str(tmp_path / "py) R 1 (x")) == "9 True"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc to look into")
def test_below_no_executor_it_is_named_by_the_directory_that_spark_gave_it(tmp_path: Path) -> None:
    assert asked_below(tmp_path, 1, "--executor", "7") == f"{tmp_path.name} True"


def test_a_process_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = executors.here()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_EXECUTOR_ID", "other")
    assert executors.here() == first
