"""Where rows go: to the task of their slot, whether all slots have rows or not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.epoch import dataflow
from midstream.plan.routing import spark_hash, tokens
from midstream.testing import Live, batches

MANY = [(key, 1) for key in range(1_000)]
FEW = [(7, 1)]  # one of the two slots has no rows
EPOCHS = (MANY, MANY, FEW, MANY, FEW, FEW, MANY)


def test_we_hash_as_spark_does(spark: SparkSession) -> None:
    hashes = spark.sql("select id, hash(cast(id as int)) as hashed from range(2000)").collect()
    assert {row.id: row.hashed for row in hashes} == {number: spark_hash(number) for number in range(2_000)}


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
def test_every_slot_has_a_partition_of_its_own(spark: SparkSession, slots: int) -> None:
    values = ", ".join(f"({token})" for token in tokens(slots))
    placed = spark.sql(f"select /*+ REPARTITION({slots}, token) */ * from values {values} as t(token)")
    found = placed.selectExpr("token", "spark_partition_id() as partition").collect()
    assert {row.partition: row.token for row in found} == dict(enumerate(tokens(slots)))


class Count(ms.KeyedFunction):
    n = ms.value("long", default=0)

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
        self.n += len(rows)
        yield key, self.n


def counted(stream: ms.Stream, kind: str) -> ms.Stream:
    keyed = stream.key_by("key")
    if kind == "aggregate":
        return keyed.aggregate("counts", n=ms.count())
    return keyed.process("counts", Count(), schema="key long, n long")


@pytest.mark.parametrize("kind", ["aggregate", "function"])
def test_slots_that_run_out_of_rows_are_run_all_the_same(
    spark: SparkSession, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[int] = []  # epochs in which the operator was run on its own
    really = dataflow.Dataflow.run_alone

    def run_alone(self: dataflow.Dataflow, id: str) -> None:
        alone.append(self.epoch)
        really(self, id)

    monkeypatch.setattr(dataflow.Dataflow, "run_alone", run_alone)

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        counted(rows, kind).sink("out", ms.sinks.memory())

    result = testing.run(spark, build, rows=batches("key long, price long", *EPOCHS), state=True, end_of_input=False)
    seen: Counter[int] = Counter()
    expected: Counter[tuple[int, int]] = Counter()
    for rows in EPOCHS:
        touched = Counter(key for key, _ in rows)
        seen += touched
        expected.update((key, seen[key]) for key in touched)
    assert Counter((row.key, row.n) for row in result.rows("out")) == expected
    assert {row.key: row.n for row in result.state["counts"]["record"]} == dict(seen)
    assert alone == [2, 4], "the first epoch in which a slot unexpectedly has no rows"


def test_a_running_operator_is_rescaled_and_its_state_goes_on(spark: SparkSession) -> None:
    out = ms.sinks.memory()
    totals: Counter[int] = Counter()

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").aggregate("sums", slots=2, total=ms.sum("v")).sink("out", out)

    def feed(live: Live) -> None:
        rows = [(k, k + len(live.progress)) for k in range(300)]
        for k, v in rows:
            totals[k] += v
        live.feed("rows", rows)
        assert {row.k: row.total for row in out.rows()} == totals

    with Live(spark, build, rows="k long, v long") as live:
        feed(live)
        up = live.modify(ms.rescale("sums", slots=5))
        assert up.note == "76 of 128 groups of 'sums' change their slot", "2 x 64 become 26, 26, 26, 25, 25"
        feed(live)
        assert len(live.job._engine.history.last.operators["sums"].logs) == 5  # type: ignore[union-attr]
        down = live.modify(ms.rescale(slots=3))
        assert down.note == "50 of 128 groups of 'sums' change their slot"
        feed(live)
        down.undo().wait(60)
        feed(live)
        with pytest.raises(ms.ModificationError, match="cannot have 129 slots"):
            live.modify(ms.rescale("sums", slots=129))
        with pytest.raises(ms.ModificationError, match="nothing would change"):
            live.modify(ms.rescale("sums", slots=5))
        with pytest.raises(ms.ModificationError, match="'out' is a sink and has no slots"):
            live.modify(ms.rescale("out", slots=2))


def test_a_rebalance_goes_by_rows_and_whoever_watches_it_sees_its_end(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(0, 1)] * 5_000 + [(k, 1) for k in range(400)]  # by keys all groups have about the same to do

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        rows.key_by("k").aggregate("sums", slots=2, total=ms.sum("v")).sink("out", ms.sinks.noop())

    with Live(spark, build, options={"groups": 4}, rows="k long, v long") as live:
        live.feed("rows", rows)
        assert sorted(slot.groups for slot in live.job.slots) == [2, 2]
        rebalance = live.job.modify(ms.rebalance("sums")).watch(60)
        assert (rebalance.phase, rebalance.note) == (
            ms.Phase.COMPLETED,
            "1 of 4 groups of 'sums' change their slot",
        )
        assert "Completed: rebalance 'sums'" in capsys.readouterr().out
        assert sorted(slot.groups for slot in live.job.slots) == [1, 3], "the one with many rows is alone"
        live.feed("rows", rows)
        for change in (ms.move("sums", groups=[0], to="1"), ms.move("sums", slots=[0], to="1"), ms.drain("1")):
            with pytest.raises(ms.ModificationError, match="one host: there is no other executor"):
                live.modify(change)
    with pytest.raises(ms.PlanError, match=r"give either groups= or slots="):
        ms.move("sums", to="1")
    with pytest.raises(ms.PlanError, match=r"no group and no slot is named"):
        ms.move("sums", to="1", groups=[])
