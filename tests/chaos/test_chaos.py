"""The chaos run itself: it finds what it is made to find, and a short one is clean."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.life import FailureError, Life, Modification
from tests.chaos.model import Cut, Spec, rows
from tests.chaos.processes import REPOSITORY

Sinks = dict[str, list[list[dict[str, object]]]]  # sink -> epoch -> rows


def written(root: Path, spoil: Callable[[Sinks], None]) -> Life:
    """A life of two epochs, as a job would leave it that counts and sums, with a change of code in the second."""
    raw: list[list[dict[str, object]]] = []
    out: list[list[dict[str, object]]] = []
    sums: dict[int, list[int]] = {}
    for epoch in range(2):
        raw.append([{"id": id, "k": k, "v": v, "tag": "t0"} for id, k, v in rows(epoch)])
        out.append([])
        for id, k, v in rows(epoch):
            total, n = sums.get(k, [0, 0])
            sums[k] = [total + v, n + 1]
            out[-1].append({"id": id, "k": k, "total": sums[k][0], "tag": "t0", "n": sums[k][1], "code": epoch})
    sinks = {"raw": raw, "out": out}
    spoil(sinks)
    for sink, epochs in sinks.items():
        for epoch, found in enumerate(epochs):
            directory = root / "life-0" / sink / f"epoch={epoch}"
            directory.mkdir(parents=True)
            (directory / "part.json").write_text("".join(json.dumps(row) + "\n" for row in found))
    table = root / "saved" / "state" / "totals" / "record"
    table.mkdir(parents=True)
    state = [{"k": k, "total": total, "n": n} for k, (total, n) in sums.items()]
    pq.write_table(pa.Table.from_pylist(state), table / "part.parquet")
    life = Life(root, 0, Spec())
    life.cuts.append(Cut(1, Spec(code=1)))
    return life


def test_what_is_whole_passes(tmp_path: Path) -> None:
    written(tmp_path, lambda sinks: None).check([0, 1], 1, tmp_path / "saved")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda sinks: sinks["raw"][1].pop(), "lost 1"),
        (lambda sinks: sinks["raw"][1].append(sinks["raw"][0][3]), "repeated 1"),
        (lambda sinks: sinks["out"][0].pop(), "1 rows lost"),
        (lambda sinks: sinks["out"][0].append(sinks["out"][0][3]), "1 too many"),
        (lambda sinks: sinks["out"][1][5].update(code=0), "1 rows lost"),
        (lambda sinks: sinks["out"][1][5].update(total=0), "1 rows lost"),
    ],
    ids=["row lost", "row repeated", "output lost", "output repeated", "old code in an epoch", "wrong sum"],
)
def test_what_is_not_whole_is_found(tmp_path: Path, spoil: Callable[[Sinks], None], why: str) -> None:
    with pytest.raises(FailureError, match=why):
        written(tmp_path, spoil).check([0, 1], 1, tmp_path / "saved")


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ({"phase": "Failed", "cut": None}, "is lost"),
        ({"phase": "RolledBack", "cut": None}, "is RolledBack"),
        ({"phase": "Cancelled", "cut": None}, "is Cancelled"),
    ],
    ids=lambda told: told["phase"] if isinstance(told, dict) else "",
)
def test_a_modification_that_is_lost_is_found(tmp_path: Path, then: dict[str, object], why: str) -> None:
    life = Life(tmp_path, 0, Spec())

    def hear_and_judge(told: dict[str, object], pending: Modification | None) -> None:
        life.hear({"number": 1, "error": "", **told}, pending)
        life.judge()

    hear_and_judge({"phase": "Armed", "cut": None}, Modification(("replace stateless", 1)))
    with pytest.raises(FailureError, match=why):
        hear_and_judge(then, None)


@pytest.mark.slow
def test_a_short_run_is_clean() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seed", "1", "--acts", "3"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search("kills: [1-9]", ended.stdout), "a fault must have fired"
    assert "Completed" in ended.stdout
