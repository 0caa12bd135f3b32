"""On a real cluster of several processes: state is whole wherever tasks run, and executors share no copy of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.job import EPOCHS, rows


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


@pytest.mark.parametrize("standbys", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_worker_killed_in_mid_epoch_changes_nothing_and_no_executor_has_the_cache_of_another(
    tmp_path: Path, standbys: int
) -> None:
    command = [sys.executable, "-m", "tests.cluster.job", str(tmp_path), str(standbys)]
    repository = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(repository / "src"), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        command, cwd=repository, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["in mid-epoch"], "the fault must fire between the first log of the epoch and its commit"
    assert told["workers"] == [1, 2], "one was killed, one came"
    assert written(tmp_path / "sums", "k", "total", "n") == expected()["sums"]
    assert written(tmp_path / "latest", "k", "t", "s", "n") == expected()["latest"]
    homes = [cache.split(os.sep)[0] for cache in told["caches"]]
    assert {"worker-0", "worker-1"} <= set(homes), "each executor keeps its own copy, where it works"
    assert sum(told["standing"]) == standbys * 2 * 16, "of the groups of both operators"
    assert (told["restored"] == 0) == (standbys > 0), "a second copy serves at once, without the durable store"
