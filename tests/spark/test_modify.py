"""A running job is changed: old code before the reported cut, new code from it, nothing lost, nothing twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.events import After, Event, Step
from midstream.modifications.changes import Change
from tests.support.modifying import (
    EPOCHS,
    EXTRA,
    KINDS,
    LIMITED,
    Modified,
    big,
    cuts,
    expected,
    files_read,
    outcome,
    records,
    rows,
    settled,
    small,
    written,
)  # fmt: skip

SAME = ("tune", "rescale")  # nothing is computed otherwise, so there is nothing to try
CUTS = {kind: 1 + number % (EPOCHS - 1) for number, kind in enumerate(KINDS)}
EVERY = [
    pytest.param(kind, at, marks=[] if at == CUTS[kind] else [pytest.mark.slow])
    for kind in KINDS
    for at in range(1, EPOCHS)
]


@pytest.mark.parametrize(("kind", "at"), EVERY)
def test_rows_and_state_are_those_of_the_old_plan_before_the_cut_and_of_the_new_one_from_it(
    spark: SparkSession, tmp_path: Path, kind: str, at: int
) -> None:
    run = Modified(spark, str(tmp_path), kind, at)
    job = run.run()
    assert run.modification is not None
    run.modification.wait(0)
    assert run.modification.phase is ms.Phase.COMPLETED
    assert run.modification.cut is not None
    cut = run.modification.cut
    assert cut.epoch in cuts(kind, at)
    tried = 0 if kind in SAME else len(rows(at - 1)) + (len(EXTRA[0]) if kind == "remove source" else 0)
    assert run.modification.rehearsed == tried
    assert cut.offsets["rows"] == f'{{"logOffset":{min(cut.epoch, EPOCHS) - 1}}}'
    files = files_read(str(tmp_path)) if kind == "add source" else EPOCHS  # the query is exchanged: see there
    assert outcome(spark, str(tmp_path), job) == expected(kind, cut.epoch, files)
    assert job.plan.version == 2
    assert [m.phase for m in job.modifications] == [ms.Phase.COMPLETED]


def test_a_first_epoch_that_fails_is_run_again_under_the_old_plan(spark: SparkSession, tmp_path: Path) -> None:
    class Touchy(ms.KeyedFunction):
        total = ms.value("long", default=0)

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            if ctx.epoch > 0:  # a dry run has epoch 0
                raise ValueError(f"cannot take {key}")
            yield key, 0

    run = Modified(spark, str(tmp_path), "none", 2, steps=[ms.replace("totals", Touchy())])
    job = run.run()
    assert run.modification is not None
    assert run.modification.phase is ms.Phase.ROLLED_BACK
    assert "ValueError: cannot take" in run.modification.error
    assert "in process" in run.modification.error, "the user's traceback"
    with pytest.raises(ms.ModificationError, match="cannot take"):
        run.modification.wait(0)
    assert outcome(spark, str(tmp_path), job) == expected("none", None)
    assert job.plan.version == 1


def test_code_that_fails_in_the_dry_run_never_touches_the_job(spark: SparkSession, tmp_path: Path) -> None:
    class Broken(ms.KeyedFunction):
        total = ms.value("long", default=0)

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            raise KeyError("oops")

    run = Modified(spark, str(tmp_path), "none", 2, steps=[ms.replace("totals", Broken())])
    job = run.run()
    assert run.modification is not None
    assert run.modification.phase is ms.Phase.REJECTED
    assert "KeyError: 'oops'" in run.modification.error
    assert outcome(spark, str(tmp_path), job) == expected("none", None)
    assert not (tmp_path / "checkpoint" / "rehearsal").exists() or not list(
        (tmp_path / "checkpoint" / "rehearsal").iterdir()
    )


def test_rows_that_cannot_be_read_again_do_not_stand_in_the_way(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "replace stateless", steps=[])
    tried: list[ms.Modification] = []

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            for epoch in range(2):
                (tmp_path / "input" / f"{epoch:06}.parquet").unlink()
            tried.append(run.job.modify(ms.replace("big", small)))
            settled(tried[0])

    run.on_event = on_event
    run.run()
    assert tried[0].wait(0).rehearsed == 0
    assert "could not be read again" in tried[0].note
    assert written(spark, f"{tmp_path}/out") == expected("replace stateless", 2)["out"]


def test_a_first_epoch_that_hangs_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    class Slow(ms.KeyedFunction):
        total = ms.value("long", default=0)

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            import time

            if ctx.epoch > 0:
                time.sleep(1000)
            yield key, 0

    run = Modified(spark, str(tmp_path), "none", 2, steps=[ms.replace("totals", Slow())])
    job = run.run(cut_deadline="6 seconds")
    assert run.modification is not None
    assert run.modification.phase is ms.Phase.ROLLED_BACK
    assert "given up after 6 seconds" in run.modification.error
    assert outcome(spark, str(tmp_path), job) == expected("none", None)


def test_state_of_a_removed_operator_is_found_again_until_it_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "remove stateful", 1)
    later: list[ms.Modification] = []

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            later.append(run.job.modify(ms.insert("limit", LIMITED, before="totals")))
            settled(later[0])

    run.on_event = on_event
    run.run()
    assert later[0].cut is not None
    assert later[0].cut.epoch == 2
    seen = {row.key: row.seen for row in records(spark, run, "limit")}
    passed = Counter(key for epoch in (0, 2, 3) for key, price in rows(epoch) if price >= 50)
    assert seen == passed, "what it counted before it was removed counts"


def test_forgotten_state_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "remove stateful", 1)

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 1):
            with pytest.raises(ms.PlanError, match="is part of the running plan"):
                run.job.forget("totals")
            with pytest.raises(ms.PlanError, match="no removed operator or source 'nobody'"):
                run.job.forget("nobody")
            run.job.forget("limit")

    run.on_event = on_event
    run.run()
    assert not (tmp_path / "checkpoint" / "state" / "limit").exists()
    with pytest.raises(ms.PlanError, match="no removed operator or source 'limit'"):
        run.job.forget("limit")


def test_an_undo_brings_the_old_plan_back(spark: SparkSession, tmp_path: Path) -> None:
    undone: list[ms.Modification] = []
    run = Modified(spark, str(tmp_path), "several", 1)

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 2):
            assert run.modification is not None
            undone.append(run.modification.undo())
            settled(undone[0])

    run.on_event = on_event
    job = run.run()
    assert undone[0].cut is not None
    assert undone[0].cut.epoch == 3
    before, after = expected("several", 1, 3), expected("none", None)
    found = outcome(spark, str(tmp_path), job)
    assert {row for row in found["out"] if row[2] < 3} == set(before["out"])
    assert found["copy"] == before["copy"]
    assert all(total > 0 for _, total, epoch in found["out"] if epoch == 3)
    assert sum(1 for row in found["out"] if row[2] == 3) == sum(1 for row in after["out"] if row[2] == 3)
    assert job.plan.version == 3
    assert {o.id for o in job.plan.operators} == {"rows", "big", "totals", "out"}


MISFITS: list[tuple[list[Change], str]] = [
    ([ms.replace("nobody", big)], "no operator 'nobody'"),
    ([ms.insert("big", small, after="rows")], "the id 'big' is used already"),
    ([ms.replace("big", lambda df: df.select("price"))], "no column 'key'.*'big' is .*key.* now and would become"),
    (
        [ms.replace("totals", ms.key_by("price").process(ms.KeyedFunction(), schema="key long, price long"))],
        "by key",
    ),
    ([ms.replace("totals", ms.key_by("key").aggregate(n=ms.count()))], "the new plan has aggregate state"),
    ([ms.remove("rows")], "'rows' is a source"),
    ([ms.replace("big", big)], "nothing would change"),
    ([ms.replace("totals", ms.transform(lambda df: df.select("key")))], "sink 'out' gets rows of"),
]


def test_what_does_not_fit_is_rejected_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "none", steps=[])
    tried: list[ms.Modification] = []

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 0):
            tried.extend(run.job.modify(*steps) for steps, _ in MISFITS)
            tried[-1].reached(ms.Phase.ARMED, 60)

    run.on_event = on_event
    run.run()
    assert [m.phase for m in tried] == [ms.Phase.REJECTED] * len(MISFITS)
    for modification, (_, message) in zip(tried, MISFITS, strict=True):
        assert re.search(message, modification.error), modification.error
    assert written(spark, f"{tmp_path}/out") == expected("none", None)["out"]
    assert run.job.plan.version == 1
