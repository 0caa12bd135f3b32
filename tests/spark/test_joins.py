"""Joins and deduplication over real Spark: every kind gives what nested loops over all rows give."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream import testing
from midstream.testing import Crash, Live, batches
from tests.support.slow import slow

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
ORDERS = "customer long, region string, item string, ts timestamp"
PAYMENTS = "payer long, place string, amount decimal(8,2), at timestamp"
DELAY = 5  # seconds of disorder
LOWER, UPPER, SIZE = -2, 4, 10
Row = tuple[Any, ...]


def second(number: int | None) -> datetime | None:
    return None if number is None else START + timedelta(seconds=number)


def arriving(seed: int, describe: Callable[[random.Random], Any]) -> list[Row]:
    """Rows (customer, region, what, second) as they arrive: disordered, with duplicates and nulls."""
    draw = random.Random(seed)
    rows: list[tuple[int, Row]] = []
    for number in range(60):
        customer = draw.choice([1, 1, 1, 2, 2, None, 10 + seed])  # the last one is only on this side
        region = draw.choice(["n", "n", "n", "s", None])
        time = None if number % 13 == 5 else draw.randrange(60)
        row = (customer, region, describe(draw), time)
        comes = (time or 0) + draw.randrange(DELAY)
        rows += [(comes, row)] * draw.choice([1, 1, 1, 2])
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


LEFT = arriving(1, lambda draw: draw.choice("abc"))
RIGHT = arriving(2, lambda draw: draw.choice([None, 1, 2]))

RELATED: dict[str, Callable[[int, int], bool]] = {
    "interval": lambda left, right: LOWER <= right - left <= UPPER,
    "window": lambda left, right: left // SIZE == right // SIZE,
}
WITHIN = {"interval": ms.between(f"{LOWER} seconds", f"{UPPER} s"), "window": ms.tumbling(timedelta(seconds=SIZE))}


def nested_loops(kind: str, how: str) -> Counter[Row]:
    """What a join is, by its definition."""

    def match(left: Row, right: Row) -> bool:
        if None in (*left[:2], *right[:2]) or left[:2] != right[:2]:
            return False
        if kind == "unbounded":
            return True
        return left[3] is not None and right[3] is not None and RELATED[kind](left[3], right[3])

    if how in ("semi", "anti"):
        return Counter(left for left in LEFT if any(match(left, right) for right in RIGHT) == (how == "semi"))
    found = Counter((*left, *right[2:]) for left in LEFT for right in RIGHT if match(left, right))
    if how in ("left", "full"):
        found.update((*left, None, None) for left in LEFT if not any(match(left, right) for right in RIGHT))
    if how in ("right", "full"):
        found.update(
            (*right[:2], None, None, *right[2:]) for right in RIGHT if not any(match(left, right) for left in LEFT)
        )
    return found


def plain(rows: list[Any]) -> Counter[Row]:
    """Rows of a sink with their times as seconds."""

    def number(value: Any) -> Any:
        if isinstance(value, datetime):
            return (value.replace(tzinfo=timezone.utc) - START) // timedelta(seconds=1)
        return value

    return Counter(tuple(number(value) for value in row) for row in rows)


def in_epochs(rows: list[Row], epochs: int) -> list[list[Row]]:
    size = -(-len(rows) // epochs)
    timed = [(*row[:3], second(row[3])) for row in rows]
    return [timed[at : at + size] for at in range(0, len(timed), size)]


def joining(*joins: tuple[str, str], slots: int) -> Callable[..., None]:
    """A flow with some kinds of joins over the same two streams."""

    def build(flow: ms.Flow, orders: ms.Stream, payments: ms.Stream) -> None:
        left = orders.with_watermark("ts", f"{DELAY} seconds").key_by("customer", "region")
        right = payments.with_watermark("at", f"{DELAY} seconds").key_by("payer", "place")
        for kind, how in joins:
            joined = left.join(f"{kind}-{how}", right, how=how, within=WITHIN.get(kind), slots=slots)
            joined.sink(f"{kind}-{how}-out", ms.sinks.memory())

    return build


FULL = (("interval", "full"), ("window", "full"), ("unbounded", "inner"))
SOME = (("interval", "semi"), ("interval", "left"), ("window", "anti"))
OTHERS = tuple((kind, how) for kind in WITHIN for how in ("inner", "left", "right", "semi", "anti"))


def check(result: testing.Result, *joins: tuple[str, str]) -> None:
    for kind, how in joins:
        expected = nested_loops(kind, how)
        assert len(expected) > 10
        assert plain(result.rows(f"{kind}-{how}-out")) == expected, (kind, how)
        if kind != "unbounded":
            assert not any(result.state[f"{kind}-{how}"].values()), "after the end nothing is kept"


@pytest.mark.parametrize(("epochs", "slots"), [slow(1, 1), slow(1, 3), slow(3, 1), (3, 3), slow(6, 1), slow(6, 3)])
def test_joins_give_what_nested_loops_give_however_the_stream_is_cut(
    spark: SparkSession, epochs: int, slots: int
) -> None:
    inputs = {
        "orders": batches(ORDERS, *in_epochs(LEFT, epochs)),
        "payments": batches(PAYMENTS, *in_epochs(RIGHT, epochs)),
    }
    check(testing.run(spark, joining(*FULL, slots=slots), end_of_input=True, state=True, **inputs), *FULL)


@pytest.mark.parametrize("joins", [SOME, slow(OTHERS)], ids=["some", "all"])
def test_the_other_kinds_do_too_and_survive_a_crash(spark: SparkSession, joins: tuple[tuple[str, str], ...]) -> None:
    before, after = in_epochs(LEFT, 2)
    inputs = {
        "orders": batches(ORDERS, before, Crash(), after),
        "payments": batches(PAYMENTS, *in_epochs(RIGHT, 2)),
    }
    result = testing.run(spark, joining(*joins, slots=1), end_of_input=True, state=True, **inputs)
    assert result.crashes == 1
    check(result, *joins)


def test_a_row_without_a_match_comes_out_when_the_watermark_proves_it_and_its_state_goes(spark: SparkSession) -> None:
    def build(flow: ms.Flow, orders: ms.Stream, payments: ms.Stream) -> None:
        left = orders.with_watermark("ts", "0 seconds").key_by("customer")
        right = payments.with_watermark("at", "0 seconds").key_by("payer")
        within = ms.between("0 seconds", "10 seconds")
        left.join("j", right, how="left", within=within, slots=2).sink("out", ms.sinks.memory())

    def order(customer: int, at: int) -> Row:
        return customer, second(at)

    result = testing.run(
        spark,
        build,
        orders=batches("customer long, ts timestamp", [order(1, 0), order(2, 0)], [order(3, 10)], [order(3, 11)], []),
        payments=batches("payer long, at timestamp", [(1, second(5))], [(9, second(10))], [(9, second(11))], []),
        state=True,
    )
    late = {epoch: [tuple(row) for row in rows] for epoch, rows in result.outputs["out"].items() if rows}
    # epoch 2 has the watermark 10: a payment of customer 2 at 10 is not late yet; epoch 3 has 11
    assert late[0] == [(1, datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 5))]
    assert late == {0: late[0], 3: [(2, datetime(2026, 1, 1), None)]}
    assert {row.customer for row in result.state["j"]["list-left"]} == {3}
    assert {row.customer for row in result.state["j"]["list-right"]} == {9}
    assert {row.customer for row in result.state["j"]["timers"]} == {3, 9}
    [kept] = [row.value for row in result.state["j"]["list-left"] if row.value.time == datetime(2026, 1, 1, 0, 0, 10)]
    assert (kept.row.ts, kept.matched) == (datetime(2026, 1, 1, 0, 0, 10), False)


def test_a_join_keeps_every_type_of_column_and_joins_a_join(spark: SparkSession) -> None:
    values = (1.5, True, b"x", START.date(), [1, None], {"k": 2}, {"a b": "deep"})
    schema = "k long, f float, t boolean, b binary, d date, a array<int>, m map<string, int>, s struct<`a b`: string>"

    def build(flow: ms.Flow, wide: ms.Stream, bare: ms.Stream) -> None:
        twice = wide.key_by("k").join("first", bare.key_by("id"))  # the right side has only its key
        others = wide.transform("renamed", lambda df: df.selectExpr("k as `the key`", "m as n"))
        twice.key_by("k").join("second", others.key_by("the key")).sink("out", ms.sinks.memory())

    result = testing.run(
        spark, build, wide=batches(schema, [(1, *values)], []), bare=batches("id long", [(1,)], [(1,)])
    )
    expected = (1, 1.5, True, bytearray(b"x"), START.date(), [1, None], {"k": 2}, ("deep",), {"k": 2})
    assert [tuple(row) for row in result.rows("out")] == [expected] * 2


def test_duplicates_within_a_span_are_dropped_in_event_time_or_by_the_clock(spark: SparkSession) -> None:
    def build(flow: ms.Flow, clicks: ms.Stream) -> None:
        clicks.with_watermark("at", "2 seconds").key_by("id").deduplicate("timed", within="10 seconds", slots=2).sink(
            "timed-out", ms.sinks.memory()
        )
        clicks.transform("some", lambda df: df.select("n", "id")).deduplicate("clock", "id", within="2 seconds").sink(
            "clock-out", ms.sinks.memory()
        )

    def click(id: str | None, number: int, at: int | None) -> Row:
        return id, second(at), number

    result = testing.run(
        spark,
        build,
        clicks=batches(
            "id string, at timestamp, n int",
            [click("a", 1, 2), click("a", 0, 1), click(None, 2, 1), click(None, 3, 1), click("b", 4, None)],
            [click("a", 5, 10), click("a", 6, 11), click("b", 7, None)],
            [click("c", 8, 40)],
            [click("a", 9, 21), click("c", 10, 41)],
        ),
        state=True,
    )
    passed = Counter(row.n for row in result.rows("timed-out"))
    assert passed - Counter([2, 3]) == Counter([0, 4, 6, 7, 8, 9])
    assert passed[2] + passed[3] == 1  # null is a key as any other
    # the clock: a second per epoch; "a" in epochs 0, 1 and 3, "b" in 0 and 1, "c" in 2 and 3
    passing = {epoch: {row.id for row in rows} for epoch, rows in result.outputs["clock-out"].items()}
    assert passing == {0: {"a", "b", None}, 2: {"c"}, 3: {"a"}}
    assert {row.id for row in result.state["timed"]["record"]} == {"c"}


# --- joins are ordinary operators -----------------------------------------------------------------------------------


def test_a_join_is_modified_moved_and_taken_back_while_it_runs(spark: SparkSession) -> None:
    out = ms.sinks.memory()

    def joined(orders: ms.Stream, how: str) -> ms.Stream:
        left, right = orders.key_by("customer"), orders.flow.stream("payments.watermark").key_by("payer")
        return left.join("j", right, how=how, within=ms.between("-5 s", "5 s"), slots=1)

    def build(flow: ms.Flow, orders: ms.Stream, payments: ms.Stream) -> None:
        payments.with_watermark("at", 0)
        joined(orders.with_watermark("ts", 0), "inner").sink("out", out)

    def pairs() -> Counter[Row]:
        return plain(out.rows())

    with Live(
        spark,
        build,
        ms.every("50 milliseconds"),
        orders="customer long, ts timestamp",
        payments="payer long, at timestamp",
    ) as live:
        live.feed("orders", [(1, second(0)), (2, second(0))])
        live.feed("payments", [(9, second(0))])
        changed = live.modify(ms.replace("j", ms.built(lambda orders: joined(orders, "left"))))
        live.feed("orders", [(3, second(1)), (4, second(1))])
        moved = live.modify(ms.rescale("j", slots=3))
        live.feed("payments", [(1, second(2)), (3, second(2))])
        assert pairs() == Counter([(1, 0, 2), (3, 1, 2)])
        once = ms.key_by("payer").deduplicate(within="1 hour")
        inserted = live.modify(ms.insert("once", once, after="payments.watermark"))
        live.feed("payments", [(1, second(3)), (9, second(20))])
        live.feed("payments", [(1, second(3))])
        live.feed("orders", [(9, second(20))])
        live.next_epoch()
        assert pairs() == Counter(
            # of 1 a payment was never seen by `once`: it passes; the next does not. 2 came before the join was outer.
            [(1, 0, 2), (3, 1, 2), (1, 0, 3), (4, 1, None), (9, 20, 20)]
        )
        for modification in (inserted, moved, changed):
            modification.undo().wait(60)
        assert [o.id for o in live.job.plan.operators if o.id.startswith("j")] == ["j.left", "j.right", "j.rows", "j"]


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Any) -> ms.Flow:
    built = ms.Flow("refused")
    built.source("orders", testing.source(spark, str(tmp_path / "o"), ORDERS, []))
    built.source("payments", testing.source(spark, str(tmp_path / "p"), PAYMENTS, []))
    return built


@pytest.mark.parametrize(
    ("left", "right", "options", "message"),
    [
        ("customer", "payer", {"how": "outer"}, "inner, left, right, full, semi, anti, not 'outer'"),
        ("customer", "payer", {"how": "left"}, "nothing proves that a row has no match.*ms.between"),
        ("customer", "payer", {"within": "1 hour"}, "within is ms.between"),
        ("customer", "payer", {"within": ms.tumbling(1), "ttl": 1}, "ttl= is for joins without within="),
        ("customer", "payer", {"within": ms.tumbling(1)}, "left side 'orders' has none: write with_watermark"),
        ("customer", "place", {}, "customer bigint on the left, place string on the right; cast"),
        ("customer", "nothing", {}, "'payments' has no column 'nothing'; it has payer"),
    ],
)
def test_a_join_that_cannot_be_is_refused_when_it_is_written(
    flow: ms.Flow, left: str, right: str, options: dict[str, Any], message: str
) -> None:
    orders, payments = (ms.Stream(flow, id) for id in ("orders", "payments"))
    with pytest.raises(ms.PlanError, match=message):
        orders.key_by(left).join("j", payments.key_by(right), **options)
    assert len(flow.plan().operators) == 2, "nothing is left of it"


def test_columns_of_one_name_and_a_stream_of_another_flow_are_refused(flow: ms.Flow) -> None:
    orders = ms.Stream(flow, "orders")
    with pytest.raises(ms.PlanError, match="two columns named 'region': rename"):
        orders.key_by("customer").join("j", orders.key_by("customer"))
    with pytest.raises(ms.PlanError, match="streams of one flow; 'payments' is of another"):
        orders.key_by("customer").join("j", ms.Stream(ms.Flow("other"), "payments").key_by("payer"))


def test_empty_spans_are_refused() -> None:
    with pytest.raises(ms.PlanError, match="lower bound comes first"):
        ms.between("1 second", "-1 second")
    with pytest.raises(ms.PlanError, match="above zero"):
        ms.tumbling(0)
    with pytest.raises(ms.PlanError, match="longer than 0"):
        ms.key_by("id").deduplicate(within=0)
