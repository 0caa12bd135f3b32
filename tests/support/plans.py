"""A plan with an operator of most kinds, as plain data: what the tests of plans share."""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.operators.aggregates import declare as ms
from midstream.plan.code import Code
from midstream.plan.plan import (
    Aggregate,
    AnyOperator,
    MapArrow,
    Plan,
    Process,
    Sink,
    Source,
    StateField,
    Transform,
    Union,
    Watermark,
)


def code(digest: str = "d", **others: Any) -> Code:
    return Code(digest=digest, key=f"key of {digest}", name="f", pickled=b"\x00\xff" + digest.encode(), **others)


SOURCE = Source(id="in", schema="x int")
BIG = Transform(id="big", inputs=("in",), code=code("big"))
TIMED = Watermark(id="timed", inputs=("big",), column="t", delay=5_000_000)
SUMS = Process(
    id="sums",
    inputs=("timed",),
    code=code("sums"),
    keys=("x",),
    schema="x int, total double",
    state=(
        StateField(name="total", kind="value", type="double", default=0.0),
        StateField(name="seen", kind="map", key_type="string", type="long", ttl=60),
    ),
    slots=4,
)
COUNTS = Aggregate(
    id="counts",
    inputs=("in",),
    keys=("x",),
    aggregates=(msgspec.structs.replace(ms.quantiles("y", 0.5, 0.9), name="q"),),
)
BOTH = Union(id="both", inputs=("sums", "counts"))
ARROW = MapArrow(id="arrow", inputs=("both",), code=code("arrow"), schema="x int")
OUT = Sink(id="out", inputs=("arrow",), code=code("out"), describe="files in /out")
PLAN = Plan(name="flow", operators=(SOURCE, BIG, TIMED, SUMS, COUNTS, BOTH, ARROW, OUT), version=3)


def plan(*operators: AnyOperator) -> Plan:
    return Plan(name="flow", operators=operators)


def with_changed(operator: AnyOperator, **changes: Any) -> Plan:
    """The plan, with one operator changed."""
    changed = msgspec.structs.replace(operator, **changes)
    return Plan(name="flow", operators=tuple(changed if each is operator else each for each in PLAN.operators))
