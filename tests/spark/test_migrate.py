"""State changes its form in flight: lazily, key by key, and the old form is still there after an undo."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.events import After, Event, Step
from tests.support.modifying import EPOCHS, Modified, expected, records, rows, settled, written


class Mean(ms.KeyedFunction):
    """Other state than `Total` of tests/modifying.py: what it was is in `before`, and counted from now."""

    before = ms.value("long", default=0)
    prices = ms.list("long")
    seen = ms.map("string", "long")

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.prices.extend(sorted(row.price for row in rows))
        self.seen["epochs"] = self.seen.get("epochs", 0) + 1
        yield key, self.before + sum(self.prices)


def to_mean(old: dict[str, Any]) -> dict[str, Any]:
    return {"before": old["total"], "seen": {"epochs": 0}}


class Doubled(ms.KeyedFunction):
    """A third form."""

    twice = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.twice += 2 * sum(row.price for row in rows)
        yield key, self.twice // 2


def to_doubled(old: dict[str, Any]) -> dict[str, Any]:
    return {"twice": 2 * (old["before"] + sum(old["prices"]))}


def test_migrated_state_goes_on_where_the_old_form_was(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "none", 2, steps=[ms.replace("totals", Mean(), migrate=to_mean)])
    job = run.run()
    assert run.modification is not None
    run.modification.wait(0)
    assert written(spark, f"{tmp_path}/out") == expected("none", None)["out"], "both forms give the same totals"
    kept = {row.key: row.before for row in records(spark, run, "totals")}
    totals = Counter[int]()
    for epoch in range(2):
        totals.update({key: 0 for key, _ in rows(epoch)})
        for key, price in rows(epoch):
            totals[key] += price if price >= 50 else 0
    assert kept == dict(totals)
    assert "totals" in job._engine.history.last.operators  # type: ignore[union-attr]


def test_state_is_migrated_twice_and_read_after_a_restart_by_a_script_with_the_new_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Modified(spark, str(tmp_path), "none", 1, steps=[ms.replace("totals", Mean(), migrate=to_mean)])
    later: list[ms.Modification] = []

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, 2):
            later.append(run.job.modify(ms.replace("totals", Doubled(), migrate=to_doubled)))
            settled(later[0])

    run.on_event = on_event
    run.run()
    later[0].wait(0)
    assert written(spark, f"{tmp_path}/out") == expected("none", None)["out"]
    again = Modified(spark, str(tmp_path), "none", steps=[]).run(on_drift="keep")
    saved = again.savepoint(os.path.join(tmp_path, "again"))
    final = {row.key: row.twice for row in spark.read.parquet(f"{saved}/state/totals/record").collect()}
    assert final == {key: 2 * total for key, total in expected("none", None)["totals"]}


def test_an_undo_finds_the_old_form(spark: SparkSession, tmp_path: Path) -> None:
    run = Modified(spark, str(tmp_path), "none", 1, steps=[ms.replace("totals", Mean(), migrate=to_mean)])
    undone: list[ms.Modification] = []

    def on_event(event: Event) -> None:
        if event == After(Step.PUBLISH, EPOCHS - 2):
            assert run.modification is not None
            undone.append(run.modification.undo())
            settled(undone[0])

    run.on_event = on_event
    run.run()
    undone[0].wait(0)
    final = {row.key: row.total for row in records(spark, run, "totals")}
    seen = [row for epoch in (0, EPOCHS - 1) for row in rows(epoch) if row[1] >= 50]
    assert final == {key: sum(price for k, price in seen if k == key) for key, _ in seen}


@pytest.mark.parametrize(
    ("migrate", "message"),
    [
        (None, "migrate= function"),
        (lambda old: {"nothing": 1}, "returned nothing; the new state has before, prices, seen"),
    ],
)
def test_state_that_does_not_fit_is_not_touched(
    spark: SparkSession, tmp_path: Path, migrate: Any, message: str
) -> None:
    run = Modified(spark, str(tmp_path), "none", 2, steps=[ms.replace("totals", Mean(), migrate=migrate)])
    run.run()
    assert run.modification is not None
    assert run.modification.phase in (ms.Phase.REJECTED, ms.Phase.ROLLED_BACK)
    assert message in run.modification.error
    assert written(spark, f"{tmp_path}/out") == expected("none", None)["out"]
