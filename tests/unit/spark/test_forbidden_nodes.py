"""Nodes of Spark's plans over a stream: the first that must not be there is found, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.spark.forbidden_nodes import INSTEAD, JOIN, STATEFUL, reads_and_offends
from tests.support.spark_plans import Node

STREAM, TABLE = Node("Stream"), Node("Table")


def found(plan: Node, instead: Any = INSTEAD) -> tuple[bool, str | None]:
    return reads_and_offends(plan, lambda leaf: leaf.nodeName() == "Stream", instead)


@pytest.mark.parametrize(
    ("plan", "reads", "offender"),
    [
        (STREAM, True, None),
        (TABLE, False, None),
        (Node("Project", Node("Filter", STREAM)), True, None),
        (Node("Aggregate", STREAM), True, "Aggregate"),
        (Node("Project", Node("Aggregate", Node("Filter", STREAM))), True, "Aggregate"),
        (Node("Sort", Node("Aggregate", STREAM)), True, "Aggregate"),
        (Node("Aggregate", TABLE), False, None),
        (Node("Join", STREAM, Node("Aggregate", TABLE)), True, None),
        (Node("Join", Node("Aggregate", STREAM), TABLE), True, "Aggregate"),
        (Node("Aggregate", Node("Join", STREAM, TABLE)), True, "Aggregate"),
        (Node("Join", STREAM, STREAM), True, None),
        (Node("Union", Node("Sort", STREAM), Node("Window", STREAM)), True, "Sort"),
        (Node("Union", TABLE, Node("Window", STREAM)), True, "Window"),
    ],
    ids=repr,
)
def test_the_lowest_node_over_the_stream_offends_and_none_over_a_table(
    plan: Node, reads: bool, offender: str | None
) -> None:
    assert found(plan) == (reads, offender)


@pytest.mark.parametrize(
    ("plan", "offender"),
    [
        (Node(JOIN, STREAM, STREAM), JOIN),
        (Node(JOIN, STREAM, Node("Filter", STREAM)), JOIN),
        (Node(JOIN, STREAM, TABLE), None),
        (Node(JOIN, TABLE, TABLE), None),
        (Node(JOIN, Node(JOIN, STREAM, TABLE), STREAM), JOIN),
        (Node("Union", STREAM, STREAM), None),
        (Node("TransformWithStateInPySpark", STREAM), "TransformWithStateInPySpark"),
    ],
    ids=repr,
)
def test_a_join_keeps_state_of_sparks_own_only_between_streams(plan: Node, offender: str | None) -> None:
    assert found(plan, INSTEAD | STATEFUL)[1] == offender


@pytest.mark.parametrize("name", sorted(INSTEAD.keys() | STATEFUL.keys()))
def test_every_node_has_something_to_be_used_instead(name: str) -> None:
    plan = Node(name, STREAM, STREAM)
    assert found(plan, INSTEAD | STATEFUL) == (True, name)
    assert (INSTEAD | STATEFUL)[name]


NAMES = ["Project", "Filter", "Aggregate", "Sort", "Window"]
PLANS = st.recursive(
    st.sampled_from([STREAM, TABLE]),
    lambda below: st.builds(
        lambda name, children: Node(name, *children), st.sampled_from(NAMES), st.lists(below, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def paths(plan: Node) -> Iterator[list[str]]:
    """The names from the root to each leaf, from left to right."""
    if plan.isEmpty():
        yield [plan.nodeName()]
    for child in plan:
        yield from ([plan.nodeName(), *rest] for rest in paths(child))


@given(PLANS)
def test_a_plan_offends_exactly_if_a_path_to_the_stream_does(plan: Node) -> None:
    to_the_stream = [path for path in paths(plan) if path[-1] == "Stream"]
    reads, offender = found(plan)
    assert reads == bool(to_the_stream)
    assert (offender is not None) == any(name in INSTEAD for path in to_the_stream for name in path)
    assert offender is None or any(offender in path for path in to_the_stream)
