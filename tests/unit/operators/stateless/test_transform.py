"""Transforms: the sides of a join are known as a text, others only as a function; Spark tries them in `tests/spark`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from midstream.operators.joins.common_form import SideForm
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.transform import TransformKind
from midstream.plan import plan as p
from midstream.plan.code import capture
from tests.support.spark_sql import run
from tests.support.tables import Tables


def query(function: Any) -> str | None:
    transform = p.Transform(id="t", inputs=("s",), code=capture(function, what="it", shipped=True))
    plan = p.Plan(name="flow", operators=(p.Source(id="s", schema=""), transform))
    return TransformKind().query(transform, Tables(Resolved(plan, {}, {}, {})))


def test_the_side_of_a_join_is_a_query_over_its_input():
    form = SideForm("left", (("k", "k"),), None, ("n",), ("struct<n: bigint>", "struct<m: bigint>"), needs_key=True)
    text = query(form)
    assert text is not None
    found = run(text, s=pa.table({"k": [1, None], "n": [10, 20]}))
    assert found == [{"k": 1, "_time": None, "_left": {"n": 10}, "_right": None}]


def test_a_function_of_the_user_is_no_text():
    assert query(lambda rows: rows) is None
