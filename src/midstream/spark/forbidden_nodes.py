"""Nodes of Spark's plans that a transform or a source must not hold, since they would be per epoch or keep state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# nodes whose meaning would silently become "per epoch", and what to use instead
INSTEAD = {
    "Aggregate": "use key_by(...).aggregate(...)",
    "Deduplicate": "use deduplicate(id, *columns, within=...)",
    "DeduplicateWithinWatermark": "use deduplicate(id, *columns, within=...)",
    "Distinct": "use deduplicate(id, *columns, within=...)",
    "Window": "use key_by(...).process(...)",
    "Sort": "an unbounded stream has no order; sort in the consumer of the sink",
    "GlobalLimit": "an unbounded stream has no first rows; use key_by(...).process(...) with a count",
    "LocalLimit": "an unbounded stream has no first rows; use key_by(...).process(...) with a count",
    "Tail": "an unbounded stream has no last rows; use key_by(...).process(...)",
    "Offset": "an unbounded stream has no first rows; use key_by(...).process(...) with a count",
}


# nodes that keep state inside Spark, which a plan cannot change, move or undo, and what to use instead
STATEFUL = dict.fromkeys(
    ("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark"),
    "use key_by(...).process(...)",
)
JOIN = "Join"  # of two streams
STATEFUL[JOIN] = "make two sources, and use key_by(...).join(...)"


def reads_and_offends(
    node: Any, is_read: Callable[[Any], bool], instead: Mapping[str, str] = INSTEAD
) -> tuple[bool, str | None]:
    """Return whether a plan reads the stream, judged by its leaves, and the first forbidden node over it."""
    children = node.children()
    if children.isEmpty():
        return is_read(node), None
    below = [reads_and_offends(children.apply(i), is_read, instead) for i in range(children.length())]
    readers, offender = sum(reads for reads, _ in below), next((found for _, found in below if found), None)
    name = node.nodeName()
    if readers and offender is None and name in instead and (name != JOIN or readers > 1):
        offender = name
    return bool(readers), offender
