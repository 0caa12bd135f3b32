"""Rows reach the slot of their group, once, and every slot has a row; the query is run over real rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from midstream.operators.resolved import Keyed
from midstream.operators.shuffle import KeyedRun, Sent, placement
from midstream.operators.task import GROUP, MARKER, SLOT, Epoch
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.state.history import Head
from tests.support.spark_sql import column, run

INPUT = StructType([StructField("k", LongType()), StructField("v", LongType())])
KEYED = Keyed(INPUT, StructType([INPUT["k"]]), None, (), pa.schema([]))
OPERATOR = p.Aggregate(id="sums", inputs=("rows",), keys=("k",), aggregates=())
ROUTING = Routing((2, 0, 1, 0, 2), 3)
RUN = KeyedRun(Head("job", "sums", "", "", 0, (None,) * 5), Epoch(7, 0, "", None), ROUTING, combine=False, markers=True)
RAW = Sent("given", {"twice": "2 * `v`"}, with_keys=True)

Row = tuple[int | None, int]
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(-3, 9)), st.integers(-9, 9)), max_size=12)


def placed(rows: Sequence[Row], sent: Sent = RAW, within: KeyedRun = RUN, *, markers: bool = True) -> list[Any]:
    query = placement(sent, OPERATOR, KEYED, within, markers=markers)
    return run(query, given=table(rows), seats=pa.table({SLOT: pa.array(ROUTING.tokens, pa.int32())}))


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.int64())})


def groups(rows: Sequence[Row]) -> list[int]:
    """The hash is another one here than Spark's: what is asked is that all of the query agrees with it."""
    return [hash % 5 for hash in column("xxhash64(`k`)", k=table(rows)["k"])]


def token(group: int) -> int:
    return ROUTING.tokens[ROUTING.owners[group]]


@given(ROWS)
def test_every_row_goes_once_to_the_slot_of_its_group(rows: list[Row]):
    expected = Counter((token(g), g, k, 2 * v) for g, (k, v) in zip(groups(rows), rows, strict=True))
    found = placed(rows, markers=False)
    assert Counter((row[SLOT], row[GROUP], row["k"], row["twice"]) for row in found) == expected


def test_markers_let_every_slot_run_and_know_its_number():
    found = placed([], markers=True)
    assert Counter((row[SLOT], row[GROUP]) for row in found) == Counter((token, MARKER) for token in ROUTING.tokens)
    assert {(row["k"], row["twice"]) for row in found} == {(None, None)}
    assert placed([], markers=False) == []


@given(ROWS)
def test_an_anchor_lets_every_slot_run_in_place_of_markers(rows: list[Row]):
    found = placed(rows, within=replace(RUN, anchor="seats"))
    real = [row for row in found if row[GROUP] != MARKER]
    assert Counter((row[SLOT], row[GROUP], row["k"], row["twice"]) for row in real) == Counter(
        (token(g), g, k, 2 * v) for g, (k, v) in zip(groups(rows), rows, strict=True)
    )
    busy = {row[SLOT] for row in real}
    assert Counter(row[SLOT] for row in found if row[GROUP] == MARKER) == Counter(set(ROUTING.tokens) - busy)


@given(ROWS)
def test_folding_gives_one_row_for_each_key(rows: list[Row]):
    sent = Sent("given", {"_rows": "count(1)", "total": "sum(`v`)"}, combine=True, with_keys=True)
    found = placed(rows, sent, markers=False)
    expected = {}
    for group, (k, v) in zip(groups(rows), rows, strict=True):
        count, total = expected.get((token(group), group, k), (0, 0))
        expected[token(group), group, k] = count + 1, total + v
    assert {(row[SLOT], row[GROUP], row["k"]): (row["_rows"], row["total"]) for row in found} == expected
    assert len(found) == len(expected)


@given(ROWS)
def test_rows_of_groups_that_two_slots_process_go_to_both(rows: list[Row]):
    both = {1: 2, 4: 0}
    found = placed(rows, within=replace(RUN, both=both), markers=False)
    expected = Counter[Any]()
    for group, (k, v) in zip(groups(rows), rows, strict=True):
        for slot in (ROUTING.owners[group], *((both[group],) if group in both else ())):
            expected[ROUTING.tokens[slot], group, k, 2 * v] += 1
    assert Counter((row[SLOT], row[GROUP], row["k"], row["twice"]) for row in found) == expected


def test_what_all_groups_are_told_comes_in_a_column_of_its_own():
    news = f"select 'news' as _broadcast, explode(sequence(0, 4, 1)) as {GROUP}"
    sent = replace(RAW, columns={"twice": "2 * `v`", "_broadcast": "cast(null as varchar)"}, broadcast=news)
    found = placed([(1, 5)], sent, markers=False)
    heard = [row for row in found if row["_broadcast"] is not None]
    assert Counter((row[SLOT], row[GROUP], row["k"], row["twice"], row["_broadcast"]) for row in heard) == Counter(
        (token(group), group, None, None, "news") for group in range(5)
    )
    assert [(row["k"], row["twice"]) for row in found if row["_broadcast"] is None] == [(1, 10)]


def test_rows_without_keys_are_of_one_group():
    alone, keyed = p.Aggregate(id="sums", inputs=("rows",), keys=(), aggregates=()), replace(KEYED, keys=StructType())
    query = placement(replace(RAW, with_keys=False), alone, keyed, RUN, markers=False)
    found = run(query, given=table([(1, 1), (2, 2), (None, 3)]))
    assert len({(row[SLOT], row[GROUP]) for row in found}) == 1
    assert sorted(row["twice"] for row in found) == [2, 4, 6]
