"""What other packages add through the contracts works as what is built in: with a crash, a savepoint, modifications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import After, Event, Step
from midstream.placement.move import Move, Outcome
from tests.outside.greatest import Greatest
from tests.outside.others import Lines, OneByOne, rename

SCHEMA = "k long, v long"


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


def test_a_kind_and_a_sink_of_another_package_survive_a_crash_and_a_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = Lines(str(tmp_path / "out"))
    has_crashed = False

    def crash(event: Event) -> None:
        nonlocal has_crashed
        if event == After(Step.COMMIT, 1) and not has_crashed:  # committed, and not published
            has_crashed = True
            raise RuntimeError("the driver falls over")

    def start(epochs: int, place: str = "job", **options: Any) -> ms.Job:
        job = flow(spark, tmp_path, epochs, sink).start(
            tmp_path / place / "checkpoint", trigger=ms.available_now(), cache=tmp_path / place / "cache", **options
        )
        job.await_termination()
        return job

    with pytest.raises(ms.MidstreamError):
        start(3, listener=crash)
    assert has_crashed
    job = start(3)
    by_epoch = sorted(given(sink)), sorted(expected(3))
    assert by_epoch[0] == by_epoch[1]
    assert "greatest (greatest by k)" in str(job.plan.explain())
    saved = job.savepoint(tmp_path / "saved")
    start(5, "again", savepoint=saved, groups=7)
    assert sorted(given(sink)) == sorted(expected(5))


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
        move = move.after(step, before, Outcome(frozenset("ab")))
    assert homes == target
    assert sorted(flips) == [0, 1, 2, 3]
