"""The task of a declared aggregate against a dictionary, epoch by epoch; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.declare import AggregateSpec, Compiled, compile_aggregates
from midstream.operators.aggregates.task import AggregateTask, spans
from midstream.operators.task import Epoch, Work
from midstream.plan.routing import Routing
from midstream.state.history import Head
from midstream.state.keys import KeyCodec
from midstream.state.stores.contract import Version
from midstream.state.stores.memory import MemoryStore
from tests.support.edits import Edits
from tests.support.window_slot import GROUPS, Stores, group_of

Row = tuple[str | None, int | None]  # user, price
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "bb", None]), st.one_of(st.none(), st.integers(-9, 9))), max_size=9
)
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("total", pa.int64())])
HEAD = Head("job", "sums", "", "", -1, (None,) * GROUPS, throw_away=True)


def compiled(**given: AggregateSpec) -> Compiled:
    specs = tuple(AggregateSpec(name=n, function=s.function, column=s.column) for n, s in given.items())
    return compile_aggregates("sums", specs, {"user": "string", "price": "bigint"}, None)


SUMS = compiled(n=ms.count(), total=ms.sum("price"))


def task(made: Compiled = SUMS, *, combined: bool = False) -> AggregateTask:
    return AggregateTask(
        operator="sums", head=HEAD, epoch=Epoch(0, 0, "", None), directory="", aside="",
        schema=bytes(SCHEMA.serialize()), keys=("user",), routing=Routing.even(GROUPS, 1), compiled=made,
        combined=combined,
    )  # fmt: skip


def sent(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as they are lifted: what each gives to the accumulators."""
    columns = {
        "user": pa.array([user for user, _ in rows], pa.string()),
        "sum price": pa.array([price or 0 for _, price in rows], pa.int64()),
        "count price": pa.array([int(price is not None) for _, price in rows], pa.int64()),
    }
    return pa.record_batch(columns)


def folded(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as the JVM folds them: one for each key."""
    users = list(dict.fromkeys(user for user, _ in rows))
    prices = [[price for other, price in rows if other == user] for user in users]
    there = [[price for price in some if price is not None] for some in prices]
    columns = {
        "user": pa.array(users, pa.string()),
        "_rows": pa.array([len(some) for some in prices], pa.int64()),
        "count": pa.array([len(some) for some in prices], pa.int64()),
        "sum price": pa.array([sum(some) for some in there], pa.int64()),
        "count price": pa.array([len(some) for some in there], pa.int64()),
    }
    return pa.record_batch(columns)


def run(task: AggregateTask, stores: dict[int, MemoryStore], batch: pa.RecordBatch) -> tuple[Counter[Any], Work]:
    groups = np.array([group_of(user) for user in batch.column("user").to_pylist()], np.int32)
    work = Work(0, Stores(HEAD, stores=stores))
    output = task.work(work, batch, groups, frozenset(range(GROUPS)))
    return Counter(tuple(row.values()) for part in output for row in part.to_pylist()), work


@given(st.lists(ROWS, max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_every_epoch_gives_out_the_new_results_of_the_keys_that_have_rows(epochs: list[list[Row]], fold: list[bool]):
    stores = {group: MemoryStore() for group in range(GROUPS)}
    model: dict[str | None, list[int | None]] = {}
    for rows, is_folded in zip(epochs, fold, strict=False):
        for user, price in rows:
            model.setdefault(user, []).append(price)
        found, work = run(task(combined=is_folded), stores, folded(rows) if is_folded else sent(rows))
        expected = Counter[Any]()
        for user in {user for user, _ in rows}:
            there = [price for price in model[user] if price is not None]
            expected[user, len(model[user]), sum(there) if there else None] += 1
        assert found == expected
        assert (work.report.rows, work.report.keys) == (len(rows), len({user for user, _ in rows}))
        logged = work.log.take()
        assert set(logged) == {group_of(user) for user, _ in rows}, "groups without rows are not written"
        for group, changes in logged.items():
            stores[group].apply([Edits(changes)], Version("job", 0, ""))


def test_a_row_that_was_folded_stands_for_many():
    assert task().counts(sent([("a", 1), ("a", 2)])) is None
    counts = task(combined=True).counts(folded([("a", 1), ("b", 5), ("a", 2)]))
    assert counts is not None
    assert counts.tolist() == [2, 1]


@pytest.mark.parametrize("combined", [False, True])
def test_rows_that_waited_are_worked_on_in_the_form_in_which_they_came(combined: bool):
    made, earlier = task(combined=combined), Epoch(3, 0, "", None)
    assert made.as_of(earlier, made.form) == replace(made, epoch=earlier)
    assert made.as_of(earlier, task(combined=not combined).form).combined != combined


def test_sketches_of_equal_content_may_differ_in_their_bytes():
    assert task().comparable
    assert not task(compiled(n=ms.count(), users=ms.approx_distinct("user"))).comparable


@pytest.mark.parametrize("combined", [False, True])
def test_rows_of_no_moment_are_late(combined: bool):
    batch = pa.record_batch(
        {"at": pa.array([1, None, 3, None], pa.int64()), "_rows": pa.array([10, 20, 30, 40], pa.int64())}
    )
    work, groups = Work(0, Stores(HEAD, stores={})), np.array([0, 1, 2, 3], np.int32)
    kept, of = task(combined=combined).timed(work, batch, groups, "at")
    assert (kept.column("at").to_pylist(), of.tolist()) == ([1, 3], [0, 2])
    assert (work.report.rows, work.report.late) == ((100, 60) if combined else (4, 2))


@given(st.lists(st.integers(0, 5)))
def test_spans_are_the_groups_and_where_their_keys_lie(groups: list[int]):
    ordered = sorted(groups)
    codec = KeyCodec(pa.schema([("k", pa.int64())]))
    rows = codec.arrange([pa.array(range(len(ordered)), pa.int64())], np.array(ordered, np.int32))
    expected = [(group, ordered.index(group), ordered.index(group) + ordered.count(group)) for group in set(ordered)]
    assert list(spans(rows)) == sorted(expected)
