"""A flow as a value: what it has, and which ids are taken."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream.errors import PlanError
from midstream.flow.flow import Flow
from midstream.flow.streams import Stream, Windowed
from midstream.plan import plan as p

SOURCES = p.Plan(name="given", operators=(p.Source(id="a", schema="n long"), p.Source(id="b", schema="n long")))


def test_a_flow_of_a_plan_begins_with_its_operators_and_leaves_the_plan_alone():
    flow = Flow.of(SOURCES)
    assert flow.plan() == SOURCES
    flow.union("both", flow.stream("a"), flow.stream("b"))
    assert flow.plan().operators == (*SOURCES.operators, p.Union(id="both", inputs=("a", "b")))
    assert len(SOURCES.operators) == 2


def test_a_flow_begins_empty_and_has_a_name():
    assert Flow("mine").plan() == p.Plan(name="mine", operators=())
    assert Flow("mine").sources == {}


def test_a_stream_of_windows_knows_its_late_rows_and_others_do_not():
    flow = Flow.of(SOURCES)
    flow.stream("a").with_watermark("ts", 0).window(ms.tumbling(1)).aggregate("counts", n=ms.count())
    assert flow.stream("counts") == Windowed(flow, "counts", "a.watermark")
    assert flow.stream("a") == Stream(flow, "a")
    assert type(flow.stream("a")) is Stream


def test_an_operator_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(PlanError, match="no operator 'c' in flow 'given'; it has 'a', 'b'"):
        Flow.of(SOURCES).stream("c")


def test_an_id_is_used_once_and_what_was_added_before_stays():
    flow = Flow.of(SOURCES)
    with pytest.raises(PlanError, match="the id 'a' is used twice in flow 'given'; give each operator its own"):
        flow.add(p.Union(id="u", inputs=("a",)), p.Union(id="a", inputs=("b",)))
    assert [operator.id for operator in flow.plan().operators] == ["a", "b", "u"]
