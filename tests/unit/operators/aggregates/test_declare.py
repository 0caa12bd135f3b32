"""What aggregates compile to, and which are refused."""

from __future__ import annotations

import math

import msgspec
import pytest

from midstream.errors import PlanError
from midstream.operators.aggregates import declare as ms
from midstream.operators.aggregates.declare import compile_aggregates
from midstream.plan.plan import AggregateSpec
from tests.support.aggregating import Spread, compiled, spec


def test_aggregates_share_what_they_both_need():
    plan = compiled(total=ms.sum("int"), average=ms.mean("int"), n=ms.count("int"), rows=ms.count())
    assert [a.name for a in plan.accumulators] == ["sum int", "count int", "count"]


@pytest.mark.parametrize("column", ["at", "tie", "there", "value", "at there", "there at", "user"])
def test_a_column_may_have_any_name(column: str):
    types = {column: "bigint", "x": "bigint", "x there": "bigint", "timestamp": "timestamp"}
    named = {"one": spec("first", "x"), "two": spec("first", "x there"), "three": spec("first", column)}
    named |= {
        "four": spec("last", column),
        "sum": ms.aggregated("x", Spread()),
        "five": ms.sum(column),
    }
    specs = tuple(msgspec.structs.replace(each, name=name) for name, each in named.items())
    plan = compile_aggregates("sums", specs, types, "timestamp")
    names = [a.name for a in plan.accumulators]
    assert len(names) == len(set(names)) == 2 + 3 * 2 + 2 + 2 + 1 + 2
    values = {output.values for output in plan.outputs}
    assert len(values) == len(plan.outputs)
    assert values | {output.present for output in plan.outputs} <= {*names, ""}


def test_raw_rows_may_be_sent_where_every_accumulator_can_be_lifted():
    assert compiled(a=ms.sum("int"), b=ms.max("double"), c=ms.last("date")).liftable
    for each in (ms.sum("decimal(12,2)"), ms.min("string"), ms.approx_distinct("int"), ms.quantiles("int", 0.5)):
        assert not compiled(a=ms.sum("int"), b=each).liftable


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (ms.sum("nowhere"), r"total = sum\('nowhere'\) names an unknown column; the stream has tinyint, int"),
        (ms.sum("string"), r"total = sum\('string'\) cannot be computed over a column of type string; cast it"),
        (ms.mean("boolean"), "of type boolean"),
        (ms.min("array<string>"), "of type array<string>"),
        (ms.quantiles("string", 0.5), "of type string"),
    ],
)
def test_an_aggregate_that_cannot_be_computed_is_refused(spec: AggregateSpec, complaint: str):
    with pytest.raises(PlanError, match=complaint):
        compiled(total=spec)


@pytest.mark.parametrize(
    "type", ["map<string,int>", "timestamp_ntz", "array<date>", "struct<a:int,b:decimal(10,2)>", "time(6)"]
)
def test_the_first_of_what_would_not_come_back_as_it_was_is_refused(type: str):
    with pytest.raises(PlanError, match="first"):
        compile_aggregates("sums", (AggregateSpec(name="f", function="first", column="c"),), {"c": type}, None)


@pytest.mark.parametrize("type", ["array<struct<date:string,decimal:timestamp>>", "struct<map:array<int>>", "binary"])
def test_the_first_of_what_comes_back_as_it_was_is_taken(type: str):
    compile_aggregates("sums", (AggregateSpec(name="f", function="first", column="c"),), {"c": type}, None)


@pytest.mark.parametrize("fractions", [(), (1.5,), (-0.1, 0.5), (math.nan,)])
def test_quantiles_need_fractions_between_0_and_1(fractions: tuple[float, ...]):
    with pytest.raises(PlanError, match="needs fractions between 0 and 1"):
        ms.quantiles("double", *fractions)
