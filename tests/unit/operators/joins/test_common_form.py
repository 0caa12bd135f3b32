"""The one form of both sides of a join, as a query over real rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from midstream.operators.joins.common_form import SideForm
from midstream.plan.code import capture
from tests.support.spark_sql import run

FORM = SideForm(
    side="right",
    keys=(("uid", "user"),),
    time="at",
    columns=("n", "x y"),
    types=("struct<a: bigint>", "struct<n: bigint, x_y: varchar>"),
    needs_key=False,
)
ROWS = pa.table(
    {
        "uid": ["u", None],
        "at": pa.array([5, 253_402_300_799_000_000], pa.int64()).cast(pa.timestamp("us")),
        "n": [1, 2],
        "x y": ["one", None],
    }
)


def selected(form: SideForm) -> list[dict[str, Any]]:
    return run(form.query("given"), given=ROWS)


def test_a_row_has_the_key_of_the_left_its_time_and_a_struct_on_its_own_side():
    first, second = selected(FORM)
    assert (first["user"], first["_left"], first["_right"]) == ("u", None, {"n": 1, "x_y": "one"})
    assert first["_time"].microsecond == 5
    assert (second["user"], second["_right"]) == (None, {"n": 2, "x_y": None})
    assert second["_time"] is None, "no calendar has it"
    assert list(first) == ["user", "_time", "_left", "_right"]


def test_the_other_side_is_the_other_column():
    mirrored = replace(FORM, side="left", types=FORM.types[::-1])
    assert [(row["_left"], row["_right"]) for row in selected(mirrored)] == [
        ({"n": 1, "x_y": "one"}, None),
        ({"n": 2, "x_y": None}, None),
    ]


def test_rows_without_a_key_are_left_out_where_they_cannot_come_out():
    assert [row["user"] for row in selected(replace(FORM, needs_key=True))] == ["u"]


def test_where_no_time_is_asked_for_there_is_none():
    assert [row["_time"] for row in selected(replace(FORM, time=None))] == [None, None]


def test_a_side_without_other_columns_is_there_all_the_same():
    bare = replace(FORM, columns=(), types=("struct<a: bigint>", "struct<there: boolean>"))
    assert [row["_right"] for row in selected(bare)] == [{"there": True}, {"there": True}]


@pytest.mark.parametrize("change", [{"side": "left"}, {"time": None}, {"columns": ("n",)}, {"needs_key": True}])
def test_a_plan_sees_that_a_side_has_changed(change: dict[str, Any]):
    one, same, other = (
        capture(form, what="it", shipped=True).digest for form in (FORM, replace(FORM), replace(FORM, **change))
    )
    assert one == same != other
