"""Transforms whose meaning would silently become "per epoch": which nodes of Spark's plan make one, and what to use."""

from __future__ import annotations

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


def reads_and_offends(node: Any, ids: set[int]) -> tuple[bool, str | None]:
    """Whether a logical plan reads the stream, and the first node over it that would become per epoch."""
    children = node.children()
    if children.isEmpty():
        output = node.output()
        return any(output.apply(i).exprId().id() in ids for i in range(output.length())), None
    reads, offender = False, None
    for i in range(children.length()):
        below, found = reads_and_offends(children.apply(i), ids)
        reads, offender = reads or below, offender or found
    name = node.nodeName()
    if reads and offender is None and name in INSTEAD:
        offender = name
    return reads, offender
