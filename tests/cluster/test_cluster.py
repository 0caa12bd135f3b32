"""On a real cluster of several processes: state is whole wherever tasks run and groups move, by whichever strategy.

Rows and state are those of plain Python, or of a job at rest.
"""

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cluster import outside
from tests.cluster.joining import KEYS
from tests.cluster.losing import EPOCHS, rows
from tests.cluster.moving import FILES, JOINED, OUTSIDE, SCENARIOS, STRATEGIES, directory_of
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


def run(root: Path, *names: str) -> list[dict[str, Any]]:
    """Run scenarios, one after the other, on a cluster in a process of its own."""
    ended = _ended(root, *names)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [_told(root, name, "told.json") for name in names]


def run_to_death(root: Path, name: str) -> dict[str, Any]:
    """Run a scenario whose driver is killed."""
    ended = _ended(root, name)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    told = _told(root, name, "fired.json")
    for process in told["processes"]:
        os.killpg(process, signal.SIGKILL)
    return told


def _ended(root: Path, *names: str) -> subprocess.CompletedProcess[str]:
    repository = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(repository / "src"), str(repository), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "tests.cluster.moving", str(root), *names]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def _told(root: Path, name: str, file: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((root / directory_of(name) / file).read_text())
    return told


def expected() -> dict[str, Counter[tuple[Any, ...]]]:
    """What the sinks must hold: plain Python over all rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {"sums": Counter(), "latest": Counter()}
    values: dict[int, list[int]] = {}
    highest: dict[int, list[int]] = {}
    for epoch in range(EPOCHS):
        for k, v in rows(epoch):
            values.setdefault(k, []).append(v)
        for k in {k for k, _ in rows(epoch)}:
            highest.setdefault(k, []).append(max(v for key, v in rows(epoch) if key == k))
            found["sums"][(epoch, k, sum(values[k]), len(values[k]))] += 1
            found["latest"][(epoch, k, sum(values[k]), sum(highest[k][-3:]), len(values[k]))] += 1
    return found


def written(directory: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    """What a file sink holds, with the epoch of each row."""
    found: Counter[tuple[Any, ...]] = Counter()
    for file in directory.glob("epoch=*/*.json"):
        epoch = int(file.parent.name.split("=")[1])
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[(epoch, *(row[column] for column in columns))] += 1
    return found


def check_killed(told: dict[str, Any], root: Path, standbys: int) -> None:
    """See that rows are right, and that executors share no copy of the state."""
    assert told["in mid-epoch"], "the fault must fire between the first log of the epoch and its commit"
    assert told["workers"] == [1, 2], "one was killed, one came"
    assert written(root / "sums", "k", "total", "n") == expected()["sums"]
    assert written(root / "latest", "k", "t", "s", "n") == expected()["latest"]
    homes = [cache.split(os.sep)[0] for cache in told["caches"]]
    assert {"worker-0", "worker-1"} <= set(homes), "each executor keeps its own copy, where it works"
    assert sum(told["standing"]) == standbys * 2 * 16, "of the groups of both operators"
    assert (told["restored"] == 0) == (standbys > 0), "a second copy serves at once, without the durable store"


def check(name: str, told: dict[str, Any], undisturbed: Undisturbed) -> None:
    """See that rows and state are those of a job at rest, and that every group has one owner."""
    assert [file for files in told["files"] for file in files] == list(range(SCENARIOS[name].files)), "each file once"
    found = {sink: Counter(rows) for sink, rows in told["outcome"].items()}
    assert found == undisturbed(told["files"]), name
    for operator in ("everything", "sums"):
        groups = [groups for id, _, _, groups in told["owners"] if id == operator]
        assert sum(groups) == 16, "every group has one owner"


def check_joined(told: dict[str, Any]) -> None:
    """See that who joins gets its share or is told why not, and that a drain moves the groups of one executor only."""
    newcomer, (leaver, stays) = told["newcomer"], told["first"]
    homes = {name: told[f"{name}, homes"] for name in ("joined", "rescaled", "moved", "balanced", "drained")}
    assert "groups of 'free' change their executor" in told["joined"]
    assert set(homes["joined"]["free"]) == {newcomer, leaver, stays}
    assert set(homes["joined"]["fixed"]) == {leaver, stays}
    assert f"executor {newcomer} gets no group of 'fixed', which has 2 slots" in told["joined"]
    assert told["rescaled"] == "5 of 16 groups of 'fixed' change their executor"
    assert sorted(homes["rescaled"]["fixed"].values()) == [5, 5, 6]
    assert told["moved"] == "2 of 16 groups of 'free' change their executor"
    assert homes["moved"]["free"][newcomer] == homes["joined"]["free"][newcomer] + 2
    assert re.fullmatch("[1-3] of 16 groups of 'free' change their executor", told["balanced"])
    before = {id: homes["balanced"][id][leaver] for id in ("free", "fixed")}
    for id, count in before.items():
        assert f"{count} of 16 groups of {id!r} change their executor" in told["drained"], "those that it had"
        assert set(homes["drained"][id]) == {newcomer, stays}
    phase, why = told["undone"]
    assert phase == "Rejected"
    assert f"nothing would change: executor {leaver} is gone: what it had of 'free', {before['free']} groups" in why
    assert told["sums"] == {id: {str(told["fed"]): KEYS} for id in ("free", "fixed")}, "each row of each key once"


def check_outside(told: dict[str, Any]) -> None:
    """See that groups have moved one by one, as the strategy says, in the store of another package, and are whole."""
    assert told["moved"] == ["Completed", "5 of 16 groups of 'sums' change their executor", ""]
    waiting = [5, *told["waiting"]]
    assert all(before - after in (0, 1) for before, after in pairwise(waiting)), f"one in an epoch: {waiting}"
    assert waiting[-1] == 0
    assert sorted(told["groups"]) == [5, 5, 6]
    assert sum(told["restored"].values()) == 0, "all groups are on their executors"
    assert told["caches"] == 3, "each executor has copies of its own"
    assert told["sums"] == {"3": outside.KEYS}, "each row of each key once"


def check_moved(scenario: str, told: dict[str, Any], undisturbed: Undisturbed) -> None:
    """See that nothing is lost, that the fewest groups have moved, and that all are on their executors."""
    check(scenario, told, undisturbed)
    assert len(told["moved"]) == len(SCENARIOS[scenario].steps)
    for name, phase, note, error in told["moved"]:
        assert (phase, error) == ("Completed", ""), name
        for operator in ("everything", "sums"):
            assert re.search(f"{LEAST[name.split()[0]]} of 16 groups of '{operator}' change their executor", note)
    assert told["accessed"] > 50, "groups were looked into while nothing moved"
    assert told["apart"], "an anchor does not go with another of as many seats"
    assert told["restored"] == 0, "and all of them were on their executor"


@pytest.mark.slow
def test_a_worker_killed_in_mid_epoch_changes_nothing(tmp_path: Path) -> None:
    (told,) = run(tmp_path, "worker killed")
    check_killed(told, tmp_path / directory_of("worker killed"), standbys=0)


def test_a_killed_worker_changes_nothing_one_that_joins_gets_its_share_and_strategies_lose_nothing(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    names = ("worker killed, standbys", JOINED, OUTSIDE, "some strategies")  # on one cluster: it starts slowly
    killed, joined, others, moved = run(tmp_path, *names)
    check_killed(killed, tmp_path / directory_of("worker killed, standbys"), standbys=1)
    check_joined(joined)
    check_outside(others)
    check_moved("some strategies", moved, undisturbed)


@pytest.mark.slow
def test_every_strategy_moves_the_fewest_groups_and_loses_nothing(undisturbed: Undisturbed, tmp_path: Path) -> None:
    (told,) = run(tmp_path, "all strategies")
    check_moved("all strategies", told, undisturbed)


def _scenarios(fault: str, strategy: str) -> list[str]:
    return [name for name in SCENARIOS if SCENARIOS[name].fault == fault and name.endswith(f", {strategy}")]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_executor_killed_around_a_move_changes_nothing(
    undisturbed: Undisturbed, tmp_path: Path, strategy: str
) -> None:
    names = _scenarios("executor", strategy)
    assert len(names) == 9, "before, during and after, each way"
    for name, told in zip(names, run(tmp_path, *names), strict=True):
        assert told["fault"].startswith("executor while the move is"), f"the fault must have fired: {name}"
        assert told["in mid-epoch"] or "during" not in name, name
        check(name, told, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_driver_killed_in_a_move_changes_nothing(undisturbed: Undisturbed, tmp_path: Path, strategy: str) -> None:
    names = _scenarios("driver", strategy)
    assert len(names) == 3, "each way"
    for name in names:
        assert run_to_death(tmp_path, name)["fault"].startswith("driver while the move is")
    for name, told in zip(names, run(tmp_path, *names), strict=True):
        check(name, told, undisturbed)
