"""Groups move between executors of a real cluster, by every strategy; rows and state are those of a job at rest."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cluster.moving import EPOCHS, KEYS, SCENARIOS, SIZE, directory_of
from tests.faults import workload

LEAST = {"in": "5", "out": "5", "drain": "[56]"}  # groups that must move, of 16: three executors have 6, 5 and 5


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    root = str(tmp_path_factory.mktemp("undisturbed"))
    job = workload.start(spark, root, epochs=EPOCHS, size=SIZE, keys=KEYS)
    job.await_termination()
    return workload.outcome(job, root)


def run(root: Path, name: str, died: bool = False) -> dict[str, Any]:
    """Run a scenario in a process of its own, and once more if its driver is to be killed."""
    repository = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(repository / "src"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "tests.cluster.moving", str(root), name]
    ended = subprocess.run(
        command, cwd=repository, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert ended.returncode == (-signal.SIGKILL if died else 0), ended.stderr[-3000:]
    told: dict[str, Any] = json.loads((root / directory_of(name) / ("fired.json" if died else "told.json")).read_text())
    return told


def check(told: dict[str, Any], undisturbed: dict[str, Counter[str]]) -> None:
    found = {name: Counter(rows) for name, rows in told["outcome"].items()}
    assert found == undisturbed
    for operator in ("everything", "sums"):
        groups = [groups for id, _, _, groups in told["owners"] if id == operator]
        assert sum(groups) == 16, "every group has one owner"


def test_every_strategy_moves_the_fewest_groups_and_loses_nothing(
    undisturbed: dict[str, Counter[str]], tmp_path: Path
) -> None:
    told = run(tmp_path, "all strategies")
    check(told, undisturbed)
    for name, phase, note, error in told["moved"]:
        assert (phase, error) == ("Completed", ""), name
        for operator in ("everything", "sums"):
            assert re.search(f"{LEAST[name.split()[0]]} of 16 groups of '{operator}' change their executor", note)
    assert told["accessed"] > 100, "groups were looked into while nothing moved"
    assert told["apart"], "an anchor does not go with another of as many seats"
    assert told["restored"] == 0, "and all of them were on their executor"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCENARIOS if SCENARIOS[name].fault])
def test_an_executor_or_the_driver_killed_around_a_move_changes_nothing(
    undisturbed: dict[str, Counter[str]], tmp_path: Path, name: str
) -> None:
    scenario = SCENARIOS[name]
    if scenario.fault == "driver":
        assert run(tmp_path, name, died=True)["fault"].startswith("driver in epoch")
    told = run(tmp_path, name)
    if scenario.fault == "executor":
        assert told["fault"].startswith("executor in epoch"), "the fault must have fired"
    check(told, undisturbed)
