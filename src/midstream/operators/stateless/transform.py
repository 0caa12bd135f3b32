"""Transforms: DataFrame functions of the user, over the rows of one epoch.

A transform is tried on an empty frame first: for its schema, and whether its meaning would silently become per epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from midstream.errors import PlanError, first_line
from midstream.operators.joins.common_form import SideForm
from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.plan import code
from midstream.plan import plan as p
from midstream.plan.plan import Transform
from midstream.spark.forbidden_nodes import INSTEAD, reads_and_offends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class TransformKind(Kind[p.Transform]):
    """A DataFrame -> DataFrame function."""

    def resolve(self, operator: p.Transform, rows: Resolving) -> Output:
        """Try the function on no rows."""
        schema = transformed(rows.spark, operator, rows.inputs[0])
        return Output(schema, rows.event_time(*operator.inputs))

    def frame(self, operator: p.Transform, frames: Frames) -> DataFrame:
        """Call the function."""
        query = self.query(operator, frames)
        if query is not None:
            return frames.spark.sql(query)
        result: DataFrame = code.load(operator.code)(frames.frame(operator.inputs[0]))
        return result

    def query(self, operator: p.Transform, frames: Frames) -> str | None:
        """Return the sides of a join as text: their SQL is known."""
        function = code.load(operator.code)
        return function.query(frames.table(operator.inputs[0])) if isinstance(function, SideForm) else None


def transformed(spark: SparkSession, operator: Transform, schema: StructType) -> StructType:
    """Return the schema of a transform's output; refuse one that fails, or would silently be per epoch."""
    probe = spark.createDataFrame([], schema)
    try:
        result = code.load(operator.code)(probe)
    except PySparkException as error:
        raise PlanError(
            f"transform {operator.id!r} fails on a stream of {schema.simpleString()}: {first_line(error)}"
        ) from error
    if not isinstance(result, DataFrame):
        raise PlanError(f"transform {operator.id!r} must return a DataFrame, but returned {type(result).__name__}")
    if not operator.per_epoch:
        stream = probe._jdf.queryExecution().analyzed()
        plan = result._jdf.queryExecution().analyzed()
        _, offender = reads_and_offends(plan, stream.sameResult)  # where it is read twice, columns get other numbers
        if offender:
            raise PlanError(
                f"transform {operator.id!r} holds {offender}, which would see one epoch's rows at a time, not the "
                f"stream: {INSTEAD[offender]}. If per epoch is what you mean, write transform(..., per_epoch=True)"
            )
    return result.schema
