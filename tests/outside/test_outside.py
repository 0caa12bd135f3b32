"""What other packages add through the contracts works as what is built in: with a crash, a savepoint, modifications."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import After, Event, Step
from midstream.placement.move import Move, MoveReport
from tests.outside.greatest import Greatest
from tests.outside.others import Lines, OneByOne, rename

SCHEMA = "k long, v long"
WHOLE = "tests.outside.whole:Whole"


def lists(count: int) -> list[list[tuple[int, int]]]:
    return [[(i % 5, (37 * number + 11 * i) % 101) for i in range(12)] for number in range(count)]


def flow(spark: SparkSession, root: Path, epochs: int, sink: Lines) -> ms.Flow:
    built = ms.Flow("outside")
    rows = built.source("rows", testing.source(spark, str(root / "input"), SCHEMA, lists(epochs)))
    built.add(Greatest(id="greatest", inputs=(rows.id,), keys=("k",), column="v", slots=2))
    built.stream("greatest").sink("out", sink)
    return built


def expected(epochs: int) -> list[tuple[int, int]]:
    """Every key of an epoch, with the greatest value up to it."""
    known: dict[int, int] = {}
    found = []
    for rows in lists(epochs):
        for key, value in rows:
            known[key] = max(known.get(key, 0), value)
        found += [(key, known[key]) for key in sorted({key for key, _ in rows})]
    return found


def given(sink: Lines) -> list[tuple[int, int]]:
    return [(row["k"], row["v"]) for row in sink.rows()]


@dataclass
class Runs:
    """Runs the flow to the end of its input, as often as is wanted."""

    spark: SparkSession
    root: Path
    has_crashed: bool = False

    @property
    def sink(self) -> Lines:
        return Lines(str(self.root / "out"))

    def run(self, epochs: int, place: str = "job", cache: str = "cache", **options: Any) -> ms.Job:
        job = flow(self.spark, self.root, epochs, self.sink).start(
            self.root / place / "checkpoint", trigger=ms.available_now(), cache=self.root / place / cache, **options
        )
        job.await_termination()
        return job

    def run_and_crash(self, epochs: int, **options: Any) -> None:
        with pytest.raises(ms.MidstreamError):
            self.run(epochs, listener=self._crash, **options)
        assert self.has_crashed

    def _crash(self, event: Event) -> None:
        if event == After(Step.COMMIT, 1) and not self.has_crashed:  # committed, and not published
            self.has_crashed = True
            raise RuntimeError("the driver falls over")


def test_a_kind_and_a_sink_of_another_package_survive_a_crash_and_a_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = Runs(spark, tmp_path)
    runs.run_and_crash(3)
    job = runs.run(3)
    by_epoch = sorted(given(runs.sink)), sorted(expected(3))
    assert by_epoch[0] == by_epoch[1]
    assert "greatest (greatest by k)" in str(job.plan.explain())
    saved = job.savepoint(tmp_path / "saved")
    runs.run(5, "again", savepoint=saved, groups=7)
    assert sorted(given(runs.sink)) == sorted(expected(5))


def test_a_store_of_another_package_survives_a_crash_and_savepoints_to_and_from_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = Runs(spark, tmp_path)
    runs.run_and_crash(3, store=WHOLE)
    job = runs.run(3, cache="another cache", store=WHOLE)
    assert sorted(given(runs.sink)) == sorted(expected(3))
    for cache in ("cache", "another cache"):
        assert list((tmp_path / "job" / cache).rglob("*.whole")), "what is here is in this store"
    with pytest.raises(ms.CheckpointError, match="keeps its state in a store of the format 'whole'"):
        runs.run(3)
    job = runs.run(4, "ours", savepoint=job.savepoint(tmp_path / "saved"))
    assert sorted(given(runs.sink)) == sorted(expected(4))
    runs.run(5, "theirs", savepoint=job.savepoint(tmp_path / "saved again"), store=WHOLE)
    assert sorted(given(runs.sink)) == sorted(expected(5))
    assert list((tmp_path / "theirs" / "checkpoint").rglob("*.whole")), "and so are snapshots"
    assert not [path for place in ("job", "theirs") for path in (tmp_path / place).rglob("*.mdb")]


def test_a_store_that_only_the_driver_can_import_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("from tests.outside.whole import Whole\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ms.PlanError, match="on an executor the store 'only_here:Whole' cannot be imported"):
        Runs(spark, tmp_path).run(1, store="only_here:Whole")
    assert not (tmp_path / "job" / "checkpoint" / "midstream.json").exists()


def test_a_change_of_another_package_is_a_modification_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    sink = Lines(str(tmp_path / "out"))
    with flow(spark, tmp_path, 2, sink).start(
        tmp_path / "checkpoint", trigger=ms.every(0), cache=tmp_path / "cache"
    ) as job:
        renamed = job.modify(ms.rescale("greatest", slots=1), rename("elsewhere")).wait(60)
        assert (job.plan.name, job.plan["greatest"].slots) == ("elsewhere", 1)  # type: ignore[union-attr]
        renamed.undo().wait(60)
        assert job.plan["greatest"].slots == 2  # type: ignore[union-attr]


def test_a_strategy_of_another_package_brings_every_group_to_its_new_place() -> None:
    homes, target, flips = ["a"] * 4, ["b"] * 4, list[int]()
    move = Move.begun(homes, target, OneByOne())
    while not move.is_done:
        step, before = move.step({}), list(homes)
        assert len(step.flip) <= 1
        flips += step.flip
        for group in step.flip:
            homes[group] = target[group]
        move = move.after(step, before, MoveReport(frozenset("ab")))
    assert homes == target
    assert sorted(flips) == [0, 1, 2, 3]
