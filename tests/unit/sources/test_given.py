"""A source as users give it: a stream, or a function that makes one; what is neither is refused with its id."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import types as T

from midstream.errors import PlanError
from midstream.plan.code import Code, capture
from midstream.sources.given import given, is_bounded, made
from tests.support.spark_plans import Node

SCHEMA = (
    T.StructType()
    .add("id", "long", nullable=False)
    .add("a b", T.ArrayType(T.StructType().add("x y", "integer")))
    .add("at", "timestamp")
)


def stream(*nodes: str, limit: int | None = None, is_streaming: bool = True) -> Any:
    """A DataFrame as far as it is looked at: nodes over what is read from a stream."""
    plan = leaf = Node("StreamingRelation")
    leaf.isStreaming = lambda: True  # type: ignore[attr-defined]
    for name in nodes:
        plan = Node(name, plan)
    java = SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan))
    return SimpleNamespace(isStreaming=is_streaming, schema=SCHEMA, limit=limit, _jdf=java)


def made_by(function: Any) -> Code:
    return capture(function, what="it", shipped=True)


def test_a_stream_is_a_source_with_its_schema_as_spark_reads_it():
    frame = stream("Project", "Filter")
    source, found = given("rows", frame)
    assert found is frame
    assert (source.id, source.code, source.inputs) == ("rows", None, ())
    assert source.schema == "`id` bigint not null, `a b` array<struct<`x y`:int>>, `at` timestamp"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (5, "int"),
        (None, "NoneType"),
        ("kafka", "str"),
        (stream(is_streaming=False), "a batch DataFrame"),
    ],
)
def test_what_is_no_stream_is_refused_with_its_id_and_kind(source: Any, shown: str):
    with pytest.raises(PlanError, match=f"source 'rows' must be a streaming DataFrame .*, not {shown}"):
        given("rows", source)


@pytest.mark.parametrize(
    ("node", "instead"),
    [
        ("Aggregate", r"key_by\(\.\.\.\)\.aggregate"),
        ("Deduplicate", "use deduplicate"),
        ("TransformWithStateInPySpark", r"key_by\(\.\.\.\)\.process"),
    ],
)
def test_a_stream_that_keeps_state_of_sparks_own_is_refused_with_what_to_use(node: str, instead: str):
    with pytest.raises(PlanError, match=f"source 'rows' holds {node}, which would keep state .*{instead}"):
        given("rows", stream("Project", node, "Filter"))


def test_without_a_session_no_function_can_make_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(PlanError, match="there is no Spark session yet; make one first"):
        given("rows", lambda spark: stream())


def test_a_function_that_cannot_be_sent_is_refused_before_it_is_called():
    lock = threading.Lock()
    with pytest.raises(PlanError, match="the function of source 'rows' cannot be sent to the executors"):
        given("rows", lambda spark: lock)


def test_a_function_is_called_with_the_session_and_what_it_gives_is_checked():
    session: Any = SimpleNamespace(load=lambda: stream())
    assert made("rows", made_by(lambda spark: spark.load()), session).isStreaming
    with pytest.raises(PlanError, match=r"source 'rows' must be a streaming DataFrame .*, not list"):
        made("rows", made_by(lambda spark: []), session)


@pytest.mark.parametrize(
    ("function", "bounded"),
    [
        (lambda spark: stream(), False),
        (lambda spark, rows=None: stream(limit=rows), False),
        (lambda spark, max_rows=None: stream(limit=max_rows), True),
        (lambda spark, *, max_rows: stream(limit=max_rows), True),
        (lambda spark, **options: stream(limit=options.get("max_rows")), False),
    ],
)
def test_a_function_with_max_rows_is_told_how_many_an_epoch_may_have(function: Any, bounded: bool):
    assert is_bounded(made_by(function)) == bounded
    session: Any = SimpleNamespace()
    assert made("rows", made_by(function), session, max_rows=7).limit == (7 if bounded else None)


def test_what_is_not_to_be_bounded_is_not_told():
    code, session = made_by(lambda spark, max_rows=3: stream(limit=max_rows)), SimpleNamespace()
    assert made("rows", code, session).limit == 3  # type: ignore[arg-type, attr-defined]
    assert not is_bounded(None)
