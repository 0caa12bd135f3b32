"""Functions over Arrow batches: their output is cast to the schema, and just the rows they fail on are put aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import SchemaError
from midstream.operators.dead_letters import FAILED
from midstream.operators.map_arrow import ArrowTask
from midstream.plan.code import capture
from tests.support.function_slot import BOTH


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails in the middle of its output."""
    for batch in batches:
        yield pa.record_batch([pa.array([2 * n for n in column.to_pylist()]) for column in batch], names=["key", "n"])
        for n in batch.column("n").to_pylist():
            if n % 5 == 0:
                raise ValueError(f"{n} is a multiple of five")


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=20), max_size=4))
def test_just_the_rows_that_fail_are_put_aside_however_batches_are_cut(cut: list[list[int]]):
    task = ArrowTask("doubled", capture(doubled, what="it", shipped=True), bytes(BOTH.serialize()), dead_letters=True)
    batches = (pa.record_batch([pa.array(some), pa.array(some)], names=["key", "n"]) for some in cut)
    found = [row for batch in task(batches) for row in batch.to_pylist()]
    numbers = [n for some in cut for n in some]
    assert [row["n"] for row in found if row[FAILED] is None] == [2 * n for n in numbers if n % 5]
    aside = [row[FAILED] for row in found if row[FAILED] is not None]
    assert [(f["row"]["n"], f["reason"]) for f in aside] == [
        (n, f"ValueError: {n} is a multiple of five") for n in numbers if n % 5 == 0
    ]
    assert all("in doubled" in f["traceback"] for f in aside)


def test_a_batch_of_another_schema_is_put_aside_and_a_lost_connection_is_raised():
    def other(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (batch.rename_columns(["key", "m"]) for batch in batches)

    def away(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ConnectionError("gone")

    def run(function: Any) -> list[dict[str, Any]]:
        code = capture(function, what="it", shipped=True)
        batch = pa.record_batch([pa.array([1, 2]), pa.array([1, 2])], names=["key", "n"])
        task = ArrowTask("other", code, bytes(BOTH.serialize()), dead_letters=True)
        return [row for made in task(iter([batch])) for row in made.to_pylist()]

    assert [row[FAILED]["row"]["n"] for row in run(other)] == [1, 2]
    with pytest.raises(ConnectionError):
        run(away)


LONGS = pa.schema([("key", pa.int64()), ("n", pa.int64())])


def task_of(function: Any) -> ArrowTask:
    return ArrowTask("it", capture(function, what="it", shipped=True), bytes(LONGS.serialize()))


def test_columns_are_put_in_order_and_cast_and_others_left_out():
    def shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            n = batch.column("n")
            yield pa.record_batch([n.cast(pa.int8()), n, n], names=["n", "more", "key"])

    given = [pa.record_batch([pa.array(some), pa.array(some)], names=["key", "n"]) for some in ([1, 2], [3])]
    made = list(task_of(shuffled)(iter(given)))
    assert [batch.to_pydict() for batch in made] == [{"key": [1, 2], "n": [1, 2]}, {"key": [3], "n": [3]}]
    assert {batch.schema for batch in made} == {LONGS}


def test_a_function_sees_all_batches_of_a_partition_and_may_give_any_number():
    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [batch.num_rows for batch in batches]
        yield pa.record_batch([pa.array(numbers), pa.array([sum(numbers)] * len(numbers))], names=["key", "n"])

    given = [pa.record_batch([pa.array(some, pa.int64())] * 2, names=["key", "n"]) for some in ([1, 2], [], [3])]
    (made,) = task_of(summed)(iter(given))
    assert made.to_pydict() == {"key": [2, 0, 1], "n": [3, 3, 3]}
    assert list(task_of(lambda batches: [])(iter(given))) == []


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (pa.record_batch([pa.array([1])], names=["key"]), r"map_arrow 'it' returned key: int64, which does not fit"),
        (pa.record_batch([pa.array(["x"]), pa.array([1])], names=["key", "n"]), "does not fit its schema key: int64"),
        ({"key": [1], "n": [1]}, "map_arrow 'it' returned dict, which does not fit"),
    ],
)
def test_what_does_not_fit_is_refused_where_nothing_is_put_aside(made: Any, complaint: str):
    with pytest.raises(SchemaError, match=complaint):
        list(task_of(lambda batches: [made])(iter([])))
