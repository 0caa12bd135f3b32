"""Groups move between executors of a real cluster, by every strategy; rows and state are those of a job at rest."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cluster.moving import FILES, SCENARIOS, directory_of
from tests.faults import workload

LEAST = {"in": "5", "out": "5", "drain": "[56]"}  # groups that must move, of 16: three executors have 6, 5 and 5


Outcome = dict[str, Counter[str]]
Undisturbed = Callable[[list[list[int]]], Outcome]


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Give what a job at rest leaves that has the same files in the same epochs.

    Where its query is exchanged or its driver dies, Spark may put a file that it had noticed into the next epoch.
    """

    @cache
    def outcome(*cut: tuple[int, ...]) -> Outcome:
        root = str(tmp_path_factory.mktemp("undisturbed"))
        together = [[row for file in files for row in FILES[file]] for files in cut]
        job = workload.start(spark, root, files=together)
        job.await_termination()
        return workload.outcome(job, root)

    return lambda cut: outcome(*map(tuple, cut))


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


def check(told: dict[str, Any], undisturbed: Undisturbed) -> None:
    assert [file for files in told["files"] for file in files] == list(range(len(FILES))), "each file once"
    found = {name: Counter(rows) for name, rows in told["outcome"].items()}
    assert found == undisturbed(told["files"])
    for operator in ("everything", "sums"):
        groups = [groups for id, _, _, groups in told["owners"] if id == operator]
        assert sum(groups) == 16, "every group has one owner"


def test_every_strategy_moves_the_fewest_groups_and_loses_nothing(undisturbed: Undisturbed, tmp_path: Path) -> None:
    told = run(tmp_path, "all strategies")
    check(told, undisturbed)
    for name, phase, note, error in told["moved"]:
        assert (phase, error) == ("Completed", ""), name
        for operator in ("everything", "sums"):
            assert re.search(f"{LEAST[name.split()[0]]} of 16 groups of '{operator}' change their executor", note)
    assert told["accessed"] > 50, "groups were looked into while nothing moved"
    assert told["apart"], "an anchor does not go with another of as many seats"
    assert told["restored"] == 0, "and all of them were on their executor"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCENARIOS if SCENARIOS[name].fault])
def test_an_executor_or_the_driver_killed_around_a_move_changes_nothing(
    undisturbed: Undisturbed, tmp_path: Path, name: str
) -> None:
    scenario = SCENARIOS[name]
    if scenario.fault == "driver":
        assert run(tmp_path, name, died=True)["fault"].startswith("driver in epoch")
    told = run(tmp_path, name)
    if scenario.fault == "executor":
        assert told["fault"].startswith("executor in epoch"), "the fault must have fired"
    check(told, undisturbed)
