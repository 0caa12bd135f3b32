"""Rows that a function fails on are put aside, exactly once, and the job goes on; new code that fails on all is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.events import Step
from midstream.testing import Crash, Live, TaskFailure, batches
from tests.support.modifying import Modified, outcome
from tests.support.modifying import expected as modified

SCHEMA = "user long, price long"
BAD = 13


class Total(ms.KeyedFunction):
    """Adds prices up, fails on a bad one after it has been counted, and has a timer that fails."""

    total = ms.value("long", default=0)

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        for row in rows:
            self.total += row.price
            yield key, self.total
            if row.price == BAD:
                raise ValueError(f"{row.price} brings bad luck")
            if row.price == 7:
                ctx.set_processing_timer(ctx.now + timedelta(seconds=1))

    def on_timer(self, key: int, timer: ms.Timer, ctx: ms.Context) -> Iterator[Any]:
        self.total = 0
        yield key, self.total
        raise LookupError("too late")


class Hopeless(Total):
    """Fails on every row."""

    def process(self, key: int, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        self.total = -1
        yield key, self.total
        raise ArithmeticError("no hope")


def even(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in incoming:
        prices = batch.column("price").to_pylist()
        if any(price % 2 for price in prices):
            raise ValueError("odd")
        yield batch


def odd(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise ArithmeticError("no hope")


def expected(epochs: list[list[tuple[int, int]]]) -> tuple[Counter[Any], Counter[Any], dict[int, int]]:
    """What comes out, what is put aside (user, price), and the totals."""
    totals, out, aside = Counter[int](), Counter[Any](), Counter[Any]()
    for rows in epochs:
        for user in sorted({user for user, _ in rows}):
            mine = [price for other, price in rows if other == user]
            if BAD in mine:
                aside.update((user, price) for price in mine)
                continue
            for price in sorted(mine):
                totals[user] += price
                out[user, totals[user]] += 1
    return out, aside, dict(totals)


def by_user(rows: ms.Stream, function: ms.KeyedFunction, **options: Any) -> ms.Stream:
    return rows.key_by("user").process("totals", function, schema="user long, total long", order_by="price", **options)


def build(flow: ms.Flow, rows: ms.Stream) -> None:
    totals = by_user(rows, Total(), on_error="dead_letter")
    totals.sink("out", ms.sinks.memory())
    totals.errors.sink("aside", ms.sinks.memory())


EPOCHS = [[(1, 10), (2, BAD), (2, 5), (3, 4)], [(2, 20), (1, BAD)], [(1, 1), (2, 2), (3, BAD), (3, 6)]]
FAULTS = [Crash(Step.RUN, "after"), TaskFailure(), Crash(Step.COMMIT, "before"), Crash(Step.COMMIT, "after")]


@pytest.mark.parametrize("faults", [[], FAULTS], ids=["undisturbed", "with crashes"])
def test_a_bad_row_is_put_aside_once_with_all_of_its_call_and_leaves_no_trace(
    spark: SparkSession, faults: list[Any]
) -> None:
    first, second, third = EPOCHS
    given = batches(SCHEMA, first, *faults[:2], second, *faults[2:], third)
    found = testing.run(spark, build, rows=given, state=True)
    out, aside, totals = expected(EPOCHS)
    assert Counter(map(tuple, found.rows("out"))) == out
    letters = found.rows("aside")
    assert Counter((row["user"], row["price"]) for row in (json.loads(letter.row) for letter in letters)) == aside
    assert all(json.loads(letter.key) == {"user": json.loads(letter.row)["user"]} for letter in letters)
    assert {(letter.operator, letter.reason, letter.timer) for letter in letters} == {
        ("totals", "ValueError: 13 brings bad luck", None)
    }
    assert all("in process" in letter.traceback for letter in letters)
    assert {row.user: row.total for row in found.state["totals"]["record"]} == totals
    errors = {progress.epoch: progress.errors for progress in found.epochs()}
    assert errors.items() <= {0: {"totals": 2}, 1: {"totals": 1}, 2: {"totals": 2}}.items()
    assert len(errors) == (2 if faults else 3)  # the driver that committed the last one died before it said so


def test_a_timer_that_fails_is_put_aside_with_its_key_and_does_not_fire_again(spark: SparkSession) -> None:
    clock = testing.ManualClock(step="1 minute")
    found = testing.run(spark, build, rows=batches(SCHEMA, [(1, 7)], [(2, 1)], [(1, 2)]), clock=clock)
    assert Counter(map(tuple, found.rows("out"))) == Counter({(1, 7): 1, (2, 1): 1, (1, 9): 1})
    (letter,) = found.rows("aside")
    assert (letter.key, letter.row, letter.reason) == ('{"user":1}', None, "LookupError: too late")
    assert letter.timer == datetime(2026, 1, 1, 0, 0, 1)


def test_of_map_arrow_just_the_rows_that_fail_are_put_aside(spark: SparkSession) -> None:
    schema = "price long, at timestamp, cost decimal(10,2), tags array<string>, note string"
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
    rows = [(price, moment, Decimal("1.50"), ["a", None], None) for price in range(6)]

    def build(flow: ms.Flow, rows: ms.Stream) -> None:
        mapped = rows.map_arrow("even", even, schema=schema, on_error="dead_letter")
        mapped.transform("prices", lambda df: df.select("price")).sink("out", ms.sinks.memory())
        mapped.errors.sink("aside", ms.sinks.memory())

    found = testing.run(spark, build, rows=batches(schema, rows[:4], rows[4:], []))
    assert sorted(row.price for row in found.rows("out")) == [0, 2, 4]
    assert sorted((json.loads(letter.row) for letter in found.rows("aside")), key=lambda row: row["price"]) == [
        {"price": n, "at": "2026-01-02T03:04:05.678901Z", "cost": 1.5, "tags": ["a", None], "note": None}
        for n in (1, 3, 5)
    ]
    assert {(letter.operator, letter.reason, letter.key) for letter in found.rows("aside")} == {
        ("even", "ValueError: odd", None)
    }
    assert [progress.errors for progress in found.epochs()][:2] == [{"even": 2}, {"even": 1}]


def test_what_is_done_with_errors_is_changed_while_the_job_runs(spark: SparkSession) -> None:
    out, aside = ms.sinks.memory(), ms.sinks.memory()

    def strict(flow: ms.Flow, rows: ms.Stream) -> None:
        by_user(rows, Total()).sink("out", out)

    with Live(spark, strict, rows=SCHEMA) as live:
        live.feed("rows", [(1, 1)])
        lenient = ms.replace("totals", Total(), on_error="dead_letter")
        unheard = live.job.modify(lenient)
        assert not unheard.reached(ms.Phase.COMPLETED, 120)
        assert "nothing reads its errors" in unheard.error
        live.modify(lenient, ms.branch("totals", lambda totals: totals.errors.sink("aside", aside)))
        live.feed("rows", [(1, BAD), (2, 2)])
        assert live.progress[-1].errors == {"totals": 1}
        behind = ms.insert("more", ms.transform(lambda df: df.where("total > 0")), after="totals")
        live.modify(ms.replace("totals", Total()), behind)  # which keeps what is done with errors
        live.feed("rows", [(2, BAD), (1, 3)])
        live.feed("rows", [(2, 3)])
        live.modify(ms.replace("totals", Total(), on_error="fail"))  # tried on rows of the last epoch
        assert [letter.row for letter in aside.rows()] == ['{"user":1,"price":13}', '{"user":2,"price":13}']
        assert Counter(map(tuple, out.rows())) == Counter({(1, 1): 1, (2, 2): 1, (1, 4): 1, (2, 5): 1})
        with pytest.raises(ms.JobError, match="13 brings bad luck"):
            live.feed("rows", [(1, BAD)])


def test_new_code_that_fails_on_all_it_gets_is_not_let_in_and_some_bad_rows_are(spark: SparkSession) -> None:
    out, aside = ms.sinks.memory(), ms.sinks.memory()

    def both(flow: ms.Flow, rows: ms.Stream) -> None:
        evens = rows.map_arrow("even", even, schema=SCHEMA, on_error="dead_letter")
        totals = by_user(evens, Total(), on_error="dead_letter")
        totals.sink("out", out)
        flow.union("all", totals.errors, evens.errors).sink("aside", aside)

    with Live(spark, both, rows=SCHEMA) as live:
        live.feed("rows", [(1, 2), (2, 4), (3, 5)])
        for hopeless in (ms.replace("totals", Hopeless()), ms.replace("even", odd)):
            change = live.job.modify(hopeless)
            assert not change.reached(ms.Phase.COMPLETED, 120)
            assert change.phase is ms.Phase.REJECTED
            assert "ArithmeticError: no hope" in change.error
            assert "which put all that it got aside" in change.error
        live.feed("rows", [(1, 5), (2, 7)])  # all of them fail, in code that is not new
        live.modify(ms.rescale("totals", slots=1))
        live.feed("rows", [(1, 9)])
        live.feed("rows", [(1, 6)])
    assert Counter(map(tuple, out.rows())) == Counter({(1, 2): 1, (2, 4): 1, (1, 8): 1})
    assert Counter((letter.operator, letter.row) for letter in aside.rows()) == Counter(
        ("even", f'{{"user":{user},"price":{price}}}') for user, price in [(3, 5), (1, 5), (2, 7), (1, 9)]
    )


def test_a_first_epoch_that_puts_all_aside_is_run_again_under_the_old_plan(spark: SparkSession, tmp_path: Path) -> None:
    class Touchy(ms.KeyedFunction):
        total = ms.value("long", default=0)

        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Any:
            if ctx.epoch > 0:  # a dry run has epoch 0
                raise ValueError(f"cannot take {key}")
            yield key, 0

    steps = [
        ms.replace("totals", Touchy(), on_error="dead_letter"),
        ms.branch("totals", lambda totals: totals.errors.sink("copy", ms.sinks.files(f"{tmp_path}/copy"))),
    ]
    run = Modified(spark, str(tmp_path), "none", 2, steps=steps)
    job = run.run()
    assert run.modification is not None
    assert run.modification.phase is ms.Phase.ROLLED_BACK
    assert "cannot take" in run.modification.error
    assert "which put all that it got aside" in run.modification.error
    assert outcome(spark, str(tmp_path), job) == modified("none", None)
