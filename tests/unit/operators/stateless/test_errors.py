"""Errors as a stream: one schema for all, read from what an operator puts aside and not from its rows."""

from __future__ import annotations

from pyspark.sql.types import LongType, StructField, StructType

from midstream.operators.kind import Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.stateless.errors import ErrorsKind
from midstream.plan import plan as p

ERRORS = p.Errors(id="failed", inputs=("f",), of="f")
PLAN = p.Plan(name="flow", operators=(p.Source(id="f", schema=""), ERRORS))


def test_errors_have_the_same_columns_whatever_failed():
    for schema in (StructType(), StructType([StructField("n", LongType())])):
        rows = Resolving(None, Resolved(PLAN, {}, {"f": "ts"}, {}), (schema,))  # type: ignore[arg-type]
        output = ErrorsKind().resolve(ERRORS, rows)
        assert [(field.name, field.dataType.simpleString()) for field in output.schema] == [
            ("operator", "string"), ("reason", "string"), ("traceback", "string"), ("key", "string"),
            ("row", "string"), ("timer", "timestamp"),
        ]  # fmt: skip
        assert output.event_time is None, "when it failed is not when it was"


def test_what_was_put_aside_is_read_and_not_the_output_of_the_operator():
    assert not ErrorsKind().reads_input(ERRORS, PLAN)
