"""A sink in a plan takes whatever comes, and gives nothing out."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from midstream.operators.kind import Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.sink import SinkKind
from midstream.plan import plan as p
from midstream.plan.code import capture
from tests.support.tables import Tables

SINK = p.Sink(id="out", inputs=("s",), code=capture(len, what="a sink", shipped=True), describe="")
KNOWN = Resolved(p.Plan(name="flow", operators=(p.Source(id="s", schema=""), SINK)), {}, {"s": "ts"}, {})


@pytest.mark.parametrize("names", [(), ("n",), ("_slot", "window_start")])
def test_rows_of_any_columns_may_go_there(names: tuple[str, ...]):
    schema = StructType([StructField(name, LongType()) for name in names])
    output = SinkKind().resolve(SINK, Resolving(None, KNOWN, (schema,)))  # type: ignore[arg-type]
    assert (output.schema, output.event_time, output.keyed) == (schema, None, None)


def test_nobody_can_read_from_it():
    with pytest.raises(AssertionError, match="'out' has no output"):
        SinkKind().frame(SINK, Tables(KNOWN))
