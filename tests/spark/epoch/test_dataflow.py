"""The frames of one epoch over a batch of several sources: each row once, what is read twice kept, and given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import midstream as ms
from midstream.epoch.dataflow import SEEN, Dataflow
from midstream.flow.flow import Flow
from midstream.operators.kind import EVENT_TIME
from midstream.operators.resolve import worked_out
from midstream.plan import plan as p
from midstream.sources.union import tagged_union

SOURCES = p.Plan(
    name="given", operators=(p.Source(id="a", schema="n long"), p.Source(id="b", schema="n long, x string"))
)
TAGS = {"a": 3, "b": 7}


@pytest.fixture
def dataflow(spark: SparkSession) -> Callable[..., Dataflow]:
    def made(build: Callable[[Flow], Any]) -> Dataflow:
        """The frames of an epoch with three rows of a, and two of b."""
        flow = Flow.of(SOURCES)
        build(flow)
        a = spark.createDataFrame([(1,), (2,), (2,)], "n long")
        b = spark.createDataFrame([(10, "x"), (None, None)], "n long, x string")
        batch = tagged_union([(TAGS["a"], a), (TAGS["b"], b)])
        return Dataflow(worked_out(spark, flow.plan()), batch, 5, "run", {}, TAGS)

    return made


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_a_source_has_its_own_rows_and_columns(dataflow: Callable[..., Dataflow]) -> None:
    flow = dataflow(lambda flow: None)
    assert rows(flow.frame("a")) == [(1,), (2,), (2,)]
    assert rows(flow.frame("b")) == [(10, "x"), (None, None)]
    assert flow.frame("b").columns == ["n", "x"]


def test_a_table_is_the_same_as_the_frame(dataflow: Callable[..., Dataflow]) -> None:
    flow = dataflow(
        lambda flow: flow.stream("a").union("both", flow.stream("b").transform("n", lambda df: df.select("n")))
    )
    for id in ("a", "n", "both"):
        assert rows(flow.spark.sql(f"select * from {flow.table(id)}")) == rows(flow.frame(id))
    assert rows(flow.frame("both")) == [(1,), (10,), (2,), (2,), (None,)]


def test_what_is_read_twice_is_kept_until_the_end(dataflow: Callable[..., Dataflow]) -> None:
    def build(flow: Flow) -> None:
        doubled = flow.stream("a").transform("doubled", lambda df: df.selectExpr("2 * n as n"))
        doubled.sink("one", ms.sinks.noop())
        doubled.sink("two", ms.sinks.noop())
        flow.stream("b").sink("three", ms.sinks.noop())

    flow = dataflow(build)
    assert flow.frame("doubled") is flow.frame("doubled")
    assert flow.frame("doubled").is_cached
    assert not flow.frame("b").is_cached
    flow.prepare()
    assert flow.batch.is_cached, "two sources are read from one batch"
    flow.close()
    assert not flow.frame("doubled").is_cached
    assert not flow.batch.is_cached


def test_what_is_observed_is_known_by_what_it_is_and_by_its_operator(dataflow: Callable[..., Dataflow]) -> None:
    flow = dataflow(lambda flow: None)
    assert flow.observed(EVENT_TIME) == {}
    rows(flow.observe(EVENT_TIME, "w", flow.frame("a"), "max(n)"))
    flow.observe("late", "w", flow.frame("a"), "count(1)")
    assert list(flow.observed(EVENT_TIME)) == ["w"]
    assert flow.observed(EVENT_TIME)["w"].get == {SEEN: 2}


def test_the_files_of_a_run_lie_apart_from_those_of_other_runs(dataflow: Callable[..., Dataflow]) -> None:
    logs, aside = dataflow(lambda flow: None).directories("sums/000000000000")
    assert logs != aside
    assert all("sums/000000000000/" in path and path.endswith("/000000000005/run") for path in (logs, aside))
