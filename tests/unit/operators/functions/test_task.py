"""The task of a keyed function: in what order rows and timers come to it, and what it knows of its epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import midstream as ms
from midstream.operators.functions.declare import state_fields
from midstream.operators.functions.task import FunctionTask, in_order, log_changes
from midstream.operators.task import Epoch, Work
from midstream.plan.code import capture
from midstream.plan.routing import Routing
from midstream.state.entries import Stage
from midstream.state.history import Head
from midstream.state.stores.memory import MemoryStore
from midstream.state.values import moment_of
from tests.support.function_slot import Ledger, Slot
from tests.support.window_slot import GROUPS, Stores

MOMENT = pa.timestamp("us", tz="UTC")
HEAD = Head("job", "told", "", "", -1, (None,) * GROUPS, throw_away=True)


class Tells(ms.KeyedFunction):
    """Says what it was called with."""

    def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
        yield str(key), repr([tuple(row) for row in rows])


def told(function: ms.KeyedFunction, batch: pa.RecordBatch, groups: list[int], **task: Any) -> list[tuple[str, str]]:
    """Run the task of a function that yields two texts over some rows."""
    keys = task.pop("keys", ("key",))
    key_schema = pa.schema([batch.schema.field(key) for key in keys])
    made = FunctionTask(
        operator="told", head=HEAD, directory="", aside="", keys=keys, routing=Routing.even(GROUPS, 1),
        schema=bytes(pa.schema([("key", pa.string()), ("told", pa.string())]).serialize()),
        code=capture(function, what="the function", shipped=True),
        stages=(Stage(state_fields(function), bytes(pa.schema([]).serialize()), 0, None),),
        key_schema=bytes(key_schema.serialize()), **{"epoch": Epoch(7, 5, "", None), "order_by": (), **task},
    )  # fmt: skip
    work = Work(0, Stores(HEAD, stores={group: MemoryStore() for group in range(GROUPS)}))
    output = made.work(work, batch, np.array(groups, np.int32), frozenset(range(GROUPS)))
    assert work.report.rows == batch.num_rows
    return [tuple(row.values()) for part in output for row in part.to_pylist()]


ROWS = st.lists(st.tuples(st.sampled_from([1, 2, 5]), st.integers(-3, 3), st.integers(0, 2)), max_size=9)


@given(ROWS, st.sampled_from(["event time", "order_by", "tie"]), st.randoms(use_true_random=False))
def test_a_key_gets_its_rows_at_once_in_an_order_that_does_not_depend_on_how_they_come(
    rows: list[tuple[int, int, int]], by: str, shuffled: Random
):
    """Rows are key, a number, and a time; the tie-break is the number."""
    shuffled.shuffle(rows)
    columns = {
        "key": [key for key, _, _ in rows], "n": [n for _, n, _ in rows], "at": [at for _, _, at in rows],
        "_tie": [n for _, n, _ in rows], **({"_order": [at for _, _, at in rows]} if by == "event time" else {}),
    }  # fmt: skip
    batch = pa.record_batch({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    found = told(Tells(), batch, [row[0] % GROUPS for row in rows], order_by=("at",) if by == "order_by" else ())
    order = {"tie": lambda row: row[1]}.get(by, lambda row: (row[2], row[1]))
    expected = [
        (str(key), repr(sorted((row for row in rows if row[0] == key), key=order)))
        for key in (1, 5, 2)  # by group, then by key: 1 and 5 are of group 1
        if any(row[0] == key for row in rows)
    ]
    assert found == expected


def test_rows_have_the_names_of_their_columns_and_none_of_ours_and_a_key_of_several_columns_too():
    class Names(ms.KeyedFunction):
        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
            yield f"{key.user} {key.day}", f"{rows[0].n} {rows[0].user} {rows[0]._fields}"

    columns = {
        "_slot": pa.array([0]), "_group": pa.array([0]), "user": pa.array(["u"]), "day": pa.array([3]),
        "n": pa.array([None], pa.int64()), "_tie": pa.array([1]),
    }  # fmt: skip
    found = told(Names(), pa.record_batch(columns), [0], keys=("user", "day"))
    assert found == [("u 3", "None u ('user', 'day', 'n')")]


def test_the_context_is_that_of_the_epoch():
    class Knows(ms.KeyedFunction):
        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
            watermark = ctx.watermark and ctx.watermark.microsecond
            yield str(key), f"{ctx.epoch} {ctx.now.microsecond} {watermark} {ctx.event_time(rows[0])} {ctx.key}"

    batch = pa.record_batch({"key": pa.array([1]), "at": pa.array([9], pa.int64()).cast(MOMENT), "_tie": pa.array([0])})
    (known,) = told(Knows(), batch, [1], epoch=Epoch(7, 5, "", 3), event_time="at")
    assert known == ("1", f"7 5 3 {moment_of(9)} 1")
    (unknown,) = told(Knows(), batch, [1])
    assert unknown == ("1", "7 5 None None 1")


def test_random_numbers_differ_between_keys_and_seeds_and_are_the_same_again():
    class Draws(ms.KeyedFunction):
        def process(self, key: Any, rows: list[Any], ctx: ms.Context) -> Iterator[Any]:
            yield str(key), str(ctx.random.random())

    batch = pa.record_batch({"key": pa.array([1, 5]), "_tie": pa.array([0, 0])})
    one, again, other = (told(Draws(), batch, [1, 1], epoch=Epoch(7, 5, seed, None)) for seed in ("s", "s", "t"))
    assert one == again
    assert len({number for _, number in (*one, *other)}) == 4


def test_no_rows_and_nothing_due_is_no_call():
    assert told(Tells(), pa.record_batch({"key": pa.array([], pa.int64()), "_tie": pa.array([], pa.int64())}), []) == []


def test_timers_fire_after_all_rows_of_their_group_in_the_order_of_time():
    slot = Slot(Ledger())
    slot.epoch([(0, 1), (4, 2)], 0)  # timers at 101 and 102, of one group
    found = slot.epoch([(0, 7)], 102)
    assert [(row["key"], row["n"]) for row in found if row["_failed"] is None] == [(0, 8), (0, -109)]
    assert [row["_failed"]["row"]["key"] for row in found if row["_failed"] is not None] == [4], "102 is not taken"


@pytest.mark.parametrize("order_by", [(), ("n",)])
def test_rows_that_are_equal_in_all_that_counts_keep_to_the_tie_break(order_by: tuple[str, ...]):
    batch = pa.record_batch({"n": pa.array([5, 5, 5]), "_tie": pa.array([30, 10, 20])})
    assert in_order(batch, order_by).tolist() == [1, 2, 0]


def test_nulls_and_nan_come_last_where_rows_are_ordered_by_a_column():
    batch = pa.record_batch(
        {"x": pa.array([None, math.nan, 1.0, -math.inf], pa.float64()), "_tie": pa.array([1, 2, 3, 4])}
    )
    assert in_order(batch, ("x",)).tolist() == [3, 2, 1, 0]


def test_changes_are_logged_in_the_order_of_entries_and_none_are_no_log():
    work = Work(0, Stores(HEAD, stores={}))
    log_changes(work, 2, {b"b": b"1", b"a": None})
    log_changes(work, 3, {})
    assert work.log.take() == {2: {b"a": None, b"b": b"1"}}
