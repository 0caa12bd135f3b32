"""Rows whose state has not come are put aside; what comes out is what would have come out, only later."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.checkpoint import retention
from midstream.events import Before, Event, Progress, Step
from midstream.operators.task import Relocation
from midstream.placement.assignment import Assignment, Serving
from tests.faults import workload
from tests.support.slow import slow

LOST = range(4, 7)  # epochs before which every copy of the state is given up
EPOCHS = 10


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    root = str(tmp_path_factory.mktemp("undisturbed"))
    job = workload.start(spark, root, epochs=EPOCHS + 1)
    job.await_termination()
    return workload.outcome(job, root)


def without_epochs(rows: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row, count in rows.items():
        found[json.dumps({name: value for name, value in json.loads(row).items() if name != "epoch"})] += count
    return found


SLOW = {"store_bytes_per_second": 1 << 20, "prefetch_time": "1 millisecond"}  # a page takes four


@pytest.mark.parametrize(
    ("bound", "mounted"),
    [slow({"prefetch_budget": 1}, False), ({"prefetch_time": 0}, False), (SLOW, True)],
    ids=["bytes", "time", "mounted"],
)
def test_groups_that_sit_epochs_out_go_through_them_later(
    bound: dict[str, Any],
    mounted: bool,
    spark: SparkSession,
    undisturbed: dict[str, Counter[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, aside, jobs, known = str(tmp_path), [], list[ms.Job](), threading.Event()
    really, begun = Assignment.serving, list[int]()

    def serving(self: Assignment, resolved: Any, id: str) -> Serving:
        """As if the host were a cluster that has lost an executor: a store that is far, and one group an epoch."""
        told = really(self, resolved, id)
        is_lost = begun[-1] in LOST
        drop = {slot: told.routing.groups_of(slot) for slot in range(told.routing.slots)} if is_lost else {}
        return dataclasses.replace(told, relocation=Relocation(drop=drop, lazy=mounted, defers=True))

    def listen(event: Event) -> None:
        if isinstance(event, Before) and event.step is Step.RUN:
            begun.append(event.epoch)
        if isinstance(event, Progress):
            known.wait()
            last = jobs[0]._engine.history.last
            assert last is not None
            aside.append({id: sum(len(each.groups) for each in s.backlog) for id, s in last.operators.items()})

    options: dict[str, Any] = {"store_bytes_per_second": 1 << 40, **bound}
    with monkeypatch.context() as patched:
        patched.setattr(retention, "MAX_AGE", 1)
        patched.setattr(Assignment, "serving", serving)
        jobs.append(workload.start(spark, root, epochs=EPOCHS, listener=listen, **options))
        known.set()
        jobs[0].await_termination()
    assert {0} < {each["everything"] for each in aside}, "rows were put aside"
    assert {0} < {each["sums"] for each in aside}
    if aside[-1]["sums"] or aside[-1]["everything"]:
        with pytest.raises(ms.CheckpointError, match="wait for state that is on its way"):
            jobs[0].savepoint(tmp_path / "early")
    job = workload.start(spark, root, epochs=EPOCHS + 1)
    job.await_termination()
    found = workload.outcome(job, root)
    for sink in ("rows", "sums"):
        assert without_epochs(found.pop(sink)) == without_epochs(undisturbed[sink]), sink
    assert found == {name: rows for name, rows in undisturbed.items() if name not in ("rows", "sums")}
