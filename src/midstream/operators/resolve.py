"""Validation of a plan end to end, before anything runs: schemas, columns, types, meaning.

Every operator is tried on an empty frame of its input's schema, which costs milliseconds and finds what would
otherwise fail in the first epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream.errors import MidstreamError
from midstream.operators.kind import Resolving
from midstream.operators.kinds import kind_of
from midstream.operators.resolved import ResolutionError, Resolved
from midstream.plan import plan as p
from midstream.plan import wiring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def resolve(spark: SparkSession, plan: p.Plan) -> Resolved:
    """Validate a plan and find all schemas."""
    wiring.check(plan)
    return worked_out(spark, plan)


def worked_out(spark: SparkSession, plan: p.Plan) -> Resolved:
    """Find the schemas of a plan that may still be incomplete; inputs must come before their consumers."""
    found = Resolved(plan, {}, {}, {})
    for operator in plan.operators:
        inputs = tuple(found.schemas[id] for id in operator.inputs)
        try:
            output = kind_of(operator).resolve(operator, Resolving(spark, found, inputs))
        except MidstreamError as error:
            raise ResolutionError(str(error), operator.id, dict(zip(operator.inputs, inputs, strict=True))) from error
        found.schemas[operator.id] = output.schema
        found.event_times[operator.id] = output.event_time if output.event_time in output.schema.names else None
        if output.keyed is not None:
            found.keyed[operator.id] = output.keyed
    return found
