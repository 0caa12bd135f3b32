"""A shadow runs a changed plan beside the real one: it says what differs, and touches nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.testing import Live


class Total(ms.KeyedFunction):
    total = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total += sum(row.v for row in rows)
        yield key, self.total


class Negated(Total):
    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.total -= sum(row.v for row in rows)
        yield key, self.total


class Touchy(Total):
    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        if any(row.v == 13 for row in rows):
            raise ValueError("no thirteens")
        yield from super().process(key, rows, ctx)


def big(df: DataFrame) -> DataFrame:
    return df.where("v >= 10")


@pytest.fixture
def sinks() -> dict[str, Any]:
    return {"totals": ms.sinks.memory(), "rows": ms.sinks.memory()}


@pytest.fixture
def live(spark: SparkSession, sinks: dict[str, Any]) -> Iterator[Live]:
    def build(flow: ms.Flow, a: ms.Stream) -> None:
        chosen = a.transform("chosen", lambda df: df.where("v >= 0"))
        chosen.sink("rows", sinks["rows"])
        chosen.key_by("k").process("sums", Total(), schema="k long, total long").sink("totals", sinks["totals"])

    with Live(spark, build, a="k long, v long") as running:
        yield running


def rows(sink: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in sink.rows())


def test_a_shadow_begins_with_the_state_of_the_job_and_says_which_rows_differ(
    live: Live, sinks: dict[str, Any]
) -> None:
    live.feed("a", [(1, 100), (2, 200)])
    shadow = live.job.shadow(ms.replace("sums", Negated()))
    live.feed("a", [(1, 1), (1, 2)])
    live.feed("a", [(2, 5)])
    found = shadow.differences
    assert (found["rows"].rows, found["rows"].differ) == (3, 0)
    assert (found["totals"].rows, found["totals"].missing, found["totals"].extra) == (2, 2, 2)
    assert set(found["totals"].samples) == {
        '- {"k":1,"total":103}', '+ {"k":1,"total":97}',
        '- {"k":2,"total":205}', '+ {"k":2,"total":195}',
    }  # fmt: skip
    assert shadow.epochs >= 2
    assert "totals: 2 rows, 2 missing, 2 extra" in str(shadow)
    assert rows(sinks["totals"]) == Counter([(1, 100), (2, 200), (1, 103), (2, 205)]), "the job's own rows"
    assert live.job.plan.version == 1


def test_a_promoted_shadow_is_the_plan_and_the_state_of_the_job_goes_on(live: Live, sinks: dict[str, Any]) -> None:
    shadow = live.job.shadow(ms.replace("sums", Negated()))
    live.feed("a", [(1, 7)])
    promoted = shadow.promote().wait(60)
    assert not shadow.is_active
    live.feed("a", [(1, 3)])
    assert rows(sinks["totals"]) == Counter([(1, 7), (1, 4)])
    assert live.job.plan.version == promoted.version
    assert shadow.differences["totals"].differ == 2, "what it found stays readable"


def test_a_discarded_shadow_leaves_nothing(live: Live, sinks: dict[str, Any]) -> None:
    live.feed("a", [(1, 1)])
    shadow = live.job.shadow(ms.replace("chosen", big), ms.remove_sink("rows"))
    live.feed("a", [(1, 2), (1, 20)])
    assert shadow.differences["rows"].missing == 2
    assert shadow.differences["totals"].differ == 2
    shadow.discard()
    shadow.discard()
    epochs = shadow.epochs
    live.feed("a", [(1, 4)])
    assert shadow.epochs == epochs
    assert rows(sinks["totals"]) == Counter([(1, 1), (1, 23), (1, 27)])
    checkpoint = Path(live.job._engine.context.journal.storage.root)
    assert not [path for path in (checkpoint / "shadow").rglob("*") if path.is_file()]


def test_a_shadow_that_fails_ends_alone(live: Live, sinks: dict[str, Any]) -> None:
    live.feed("a", [(1, 1)])
    shadow = live.job.shadow(ms.replace("sums", Touchy()))
    live.feed("a", [(1, 13)])
    live.feed("a", [(1, 1)])
    assert "ValueError: no thirteens" in shadow.error
    assert not shadow.is_active
    assert rows(sinks["totals"]) == Counter([(1, 1), (1, 14), (1, 15)])
    again = live.job.shadow(ms.replace("sums", Negated()))
    live.feed("a", [(1, 5)])
    assert set(again.differences["totals"].samples) == {'- {"k":1,"total":20}', '+ {"k":1,"total":10}'}


def test_what_a_shadow_cannot_be_is_refused(live: Live) -> None:
    live.feed("a", [(1, 1)])
    with pytest.raises(ms.PlanError, match="no operator 'nothing'"):
        live.job.shadow(ms.remove("nothing"))
    with pytest.raises(ms.PlanError, match="cannot tune them"):
        live.job.shadow(ms.tune(epoch_interval="1 second"))
    live.feed("a", [(1, 13)])
    with pytest.raises(Exception, match="no thirteens"):
        live.job.shadow(ms.replace("sums", Touchy()))
    live.job.shadow(ms.replace("sums", Negated()))
    with pytest.raises(ms.JobError, match="has a shadow already"):
        live.job.shadow(ms.replace("chosen", big))
    live.job.stop()
    with pytest.raises(ms.JobError, match="has ended"):
        live.job.shadow(ms.replace("sums", Negated()))
