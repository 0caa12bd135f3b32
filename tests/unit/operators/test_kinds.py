"""Every node of a plan has a kind, and those with state are known by it."""

from __future__ import annotations

from typing import get_args

import pytest

from midstream.operators.keyed import KeyedKind
from midstream.operators.kind import Kind
from midstream.operators.kinds import KINDS, keyed_kind_of, kind_of, register
from midstream.plan import plan as p
from midstream.plan.code import capture

CODE = capture(len, what="a function", shipped=True)
ONE_OF_EACH: tuple[p.Operator, ...] = (
    p.Source(id="o", schema="n long"),
    p.Transform(id="o", code=CODE),
    p.MapArrow(id="o", code=CODE, schema="n long"),
    p.Union(id="o"),
    p.Watermark(id="o", column="ts", delay=0),
    p.Process(id="o", keys=(), code=CODE, schema=""),
    p.Aggregate(id="o", keys=(), aggregates=()),
    p.Window(id="o", keys=(), aggregates=(), size=1, slide=1),
    p.Spread(id="o", of="x", size=1, slide=1),
    p.Late(id="o", of="x"),
    p.Errors(id="o", of="x"),
    p.Sink(id="o", code=CODE, describe=""),
)
OURS = {node for node in get_args(p.AnyOperator) if node is not p.KeyedOperator}


def test_these_are_all_nodes_of_a_plan():
    assert {type(operator) for operator in ONE_OF_EACH} == OURS
    assert set(KINDS) >= OURS


@pytest.mark.parametrize("operator", ONE_OF_EACH, ids=lambda operator: type(operator).__name__)
def test_a_node_has_a_kind_of_its_own_and_keeps_state_if_it_is_keyed(operator: p.Operator):
    kind = kind_of(operator)
    assert [type(other) for node, other in KINDS.items() if node in OURS].count(type(kind)) == 1
    if isinstance(operator, p.KeyedOperator):
        assert keyed_kind_of(operator) is kind
        assert isinstance(kind, KeyedKind)
    else:
        with pytest.raises(AssertionError, match="'o' keeps no state"):
            keyed_kind_of(operator)


def test_only_windows_count_late_rows_by_their_task_and_are_looked_into_after_a_change():
    assert {node for node in OURS if KINDS[node].counts_late} == {p.Window}
    keyed = {node: KINDS[node] for node in OURS if issubclass(node, p.KeyedOperator)}
    assert {node for node, kind in keyed.items() if kind.closes_by_plan} == {p.Window}  # type: ignore[attr-defined]
    assert {node for node, kind in keyed.items() if kind.looks_at_once} == {p.Window}  # type: ignore[attr-defined]


class Again(p.Source, frozen=True, kw_only=True, tag="source"):
    """Takes a tag that is taken."""


def test_a_tag_that_is_taken_is_refused_and_nothing_is_added():
    kind: Kind[p.Source] = KINDS[p.Source]
    with pytest.raises(p.PlanError, match="the tag 'source' of Again is taken by Source"):
        register(Again, kind)
    assert Again not in KINDS
