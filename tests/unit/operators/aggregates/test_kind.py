"""Declared aggregates as a kind: what is sent of rows, folded or not; what is refused only Spark can say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from midstream.errors import PlanError
from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.kind import AggregateKind, accumulators, compiled_of, compiled_over, portable
from midstream.operators.aggregates.task import AggregateTask
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema
from midstream.operators.shuffle import KeyedRun
from midstream.operators.tables import PortableAggregate
from midstream.operators.task import Epoch
from midstream.plan import plan as p
from midstream.plan.routing import Routing
from midstream.state.history import Head
from tests.support.spark_sql import run
from tests.support.tables import Tables

ROWS = StructType(
    [StructField("user", StringType()), StructField("price", LongType()), StructField("id", LongType(), nullable=False)]
)
ROUTING = Routing.even(4, 2)


def aggregate(**given: p.AggregateSpec) -> p.Aggregate:
    specs = tuple(
        p.AggregateSpec(name=name, function=spec.function, column=spec.column) for name, spec in given.items()
    )
    return p.Aggregate(id="sums", inputs=("s",), keys=("user",), aggregates=specs)


SUMS = aggregate(n=ms.count(), total=ms.sum("price"), best=ms.max("price"))


def frames(operator: p.Aggregate, *, combine: bool = False) -> Tables:
    """A run of an aggregate whose results are longs."""
    compiled = compiled_over(operator, ROWS, None)
    output = StructType([ROWS["user"], *(StructField(o.name, LongType()) for o in compiled.outputs)])
    keyed = Keyed(ROWS, StructType([ROWS["user"]]), None, (), arrow_schema(output), compiled)
    plan = p.Plan(name="flow", operators=(p.Source(id="s", schema=""), operator))
    epoch, head = Epoch(1, 0, "", None), Head("job", "sums", "", "", 0, (None,) * 4)
    known = Resolved(plan, {"s": ROWS, "sums": output}, {}, {"sums": keyed})
    return Tables(known, {"sums": KeyedRun(head, epoch, ROUTING, combine, markers=True)})


def dispatched(operator: p.Aggregate, *, combine: bool = False) -> Any:
    made = frames(operator, combine=combine)
    common: dict[str, Any] = {
        "operator": "sums", "head": made.keyed["sums"].head, "epoch": made.keyed["sums"].epoch, "directory": "",
        "aside": "", "schema": b"", "keys": ("user",), "routing": ROUTING,
    }  # fmt: skip
    return AggregateKind().dispatch(operator, made, common)


@pytest.mark.parametrize("combine", [False, True])
def test_rows_are_folded_before_they_are_sent_if_that_pays(combine: bool):
    made = dispatched(SUMS, combine=combine)
    assert isinstance(made.task, AggregateTask)
    assert (made.sent.combine, made.task.combined, made.sent.with_keys) == (combine, combine, True)
    assert made.sent.rows == "s"


def test_what_can_only_be_merged_in_parts_is_always_folded():
    made = dispatched(aggregate(users=ms.approx_distinct("user")))
    assert (made.sent.combine, made.task.combined) == (True, True)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(-9, 9))), max_size=9))
def test_folding_in_the_jvm_is_folding_what_is_lifted(rows: list[tuple[str, int | None]]):
    """Both are SQL; merged by hand, what is sent of rows is what is sent of keys."""
    compiled = compiled_over(SUMS, ROWS, None)
    table = pa.table(
        {"user": pa.array([u for u, _ in rows], pa.string()), "price": pa.array([n for _, n in rows], pa.int64())}
    )
    lifted, combined = accumulators(compiled, False), accumulators(compiled, True)
    assert set(combined) - set(lifted) == {"_rows", "count"}, "that there is a row says it is one"
    each = run(f"select user, {columns(lifted)} from given", given=table)
    per_key = {
        row["user"]: row for row in run(f"select user, {columns(combined)} from given group by user", given=table)
    }
    assert set(per_key) == {user for user, _ in rows}
    for user, found in per_key.items():
        mine = [row for row in each if row["user"] == user]
        assert (found["_rows"], found["count"]) == (len(mine), len(mine))
        assert found["sum price"] == sum(row["sum price"] for row in mine)
        assert found["count price"] == sum(row["count price"] for row in mine)
        assert found["max price"] == max(row["max price"] for row in mine)


def columns(named: dict[str, str]) -> str:
    return ", ".join(f"{expression} as `{name}`" for name, expression in named.items())


def test_a_column_that_is_never_null_needs_no_count_of_its_values():
    counted = compiled_over(aggregate(a=ms.sum("price"), b=ms.sum("id")), ROWS, None)
    assert [a.name for a in counted.accumulators] == ["sum price", "count price", "sum id", "count"]


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(
        PlanError, match=r"aggregate 'sums': x = sum\('y'\) names an unknown column; the stream has user"
    ):
        compiled_over(aggregate(x=ms.sum("y")), ROWS, None)


def test_a_savepoint_has_a_table_of_results_by_key():
    known = frames(SUMS).resolved
    form = AggregateKind().form(SUMS, known)
    assert form == portable(SUMS, known, PortableAggregate)
    assert form.aggregate is not None
    kind, compiled, shown = form.aggregate
    assert (kind, compiled) == (PortableAggregate, compiled_of(known, "sums"))
    assert pa.ipc.read_schema(pa.py_buffer(shown)).names == ["n", "total", "best"]
    assert pa.ipc.read_schema(pa.py_buffer(form.keys)).names == ["user"]
