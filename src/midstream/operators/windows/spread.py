"""Rows spread over windows: each once for every window that takes it, for a keyed function."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType, TimestampType

from midstream.operators.kind import LATE, Frames, Kind, Output, Resolving
from midstream.operators.windows.sql import WindowSql
from midstream.plan import plan as p
from midstream.plan.column_names import refuse_taken
from midstream.plan.windows import BOUNDS


class SpreadKind(Kind[p.Spread]):
    """Each row once for every window that takes it."""

    def resolve(self, operator: p.Spread, rows: Resolving) -> Output:
        """Add the bounds of the window."""
        (schema,) = rows.inputs
        refuse_taken(operator.id, schema.names, BOUNDS)
        bounds = (StructField(name, TimestampType()) for name in BOUNDS)
        return Output(StructType([*schema, *bounds]), rows.event_time(*operator.inputs))

    def frame(self, operator: p.Spread, frames: Frames) -> DataFrame:
        """Return the rows with their windows; those that none takes are counted."""
        sql = WindowSql(frames.resolved, frames.keyed, frames.clock)
        is_taken, (starts, *bounds) = sql.is_taken(operator), sql.spread(operator)
        rows = frames.observe(LATE, operator.id, frames.frame(operator.inputs[0]), sql.count_late(operator))
        return rows.where(is_taken).selectExpr("*", starts).selectExpr("* except (_start)", *bounds)

    def observed(self, operator: p.Spread, frames: Frames) -> int:
        """Count the rows that no window takes."""
        sql = WindowSql(frames.resolved, frames.keyed, frames.clock)
        return int(frames.frame(operator.inputs[0]).selectExpr(sql.count_late(operator)).collect()[0][0])
