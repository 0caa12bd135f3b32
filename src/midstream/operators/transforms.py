"""A transform tried on an empty frame: what comes out, and whether its meaning would silently become per epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from midstream.errors import PlanError, first_line
from midstream.plan import code
from midstream.plan.plan import Transform
from midstream.spark.forbidden_nodes import INSTEAD, reads_and_offends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def transformed(spark: SparkSession, operator: Transform, schema: StructType) -> StructType:
    """Return the schema of what a transform makes of rows; refuses one that fails, or would be per epoch unsaid."""
    probe = spark.createDataFrame([], schema)
    try:
        result = code.load(operator.code)(probe)
    except PySparkException as error:
        raise PlanError(
            f"transform {operator.id!r} fails on a stream of {schema.simpleString()}: {first_line(error)}"
        ) from error
    if not isinstance(result, DataFrame):
        raise PlanError(f"transform {operator.id!r} must return a DataFrame, it returned {type(result).__name__}")
    if not operator.per_epoch:
        ids = _ids(probe._jdf.queryExecution().analyzed())
        plan = result._jdf.queryExecution().analyzed()
        _, offender = reads_and_offends(plan, lambda leaf: not ids.isdisjoint(_ids(leaf)))
        if offender:
            raise PlanError(
                f"transform {operator.id!r} holds {offender}, which would see one epoch's rows at a time, not the "
                f"stream: {INSTEAD[offender]}. If per epoch is what you mean, say transform(..., per_epoch=True)"
            )
    return result.schema


def _ids(plan: Any) -> set[int]:
    """Of the columns that come out, as Spark numbers them."""
    output = plan.output()
    return {output.apply(i).exprId().id() for i in range(output.length())}
