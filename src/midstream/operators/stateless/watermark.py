"""Watermarks: the event-time column of a stream, whose greatest value is observed in every epoch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from midstream.errors import PlanError
from midstream.operators.kind import EVENT_TIME, Frames, Kind, Output, Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.schemas import check_punctuation, unknown_column
from midstream.operators.watermarks import observed
from midstream.plan import plan as p


class WatermarkKind(Kind[p.Watermark]):
    """Declares the event-time column."""

    def resolve(self, operator: p.Watermark, rows: Resolving) -> Output:
        """Refuse a column that has no times."""
        (schema,) = rows.inputs
        if operator.column not in schema.names:
            raise unknown_column(f"with_watermark {operator.id!r}", operator.column, schema)
        type = schema[operator.column].dataType.simpleString()
        if type != "timestamp":
            raise PlanError(
                f"with_watermark {operator.id!r}: column {operator.column!r} is {type}; it must be a timestamp"
            )
        check_punctuation(rows.spark, f"with_watermark {operator.id!r}", operator.punctuation, schema)
        return Output(schema, operator.column)

    def frame(self, operator: p.Watermark, frames: Frames) -> DataFrame:
        """Return the rows; their event times are observed only where they are needed: that costs time."""
        rows = frames.frame(operator.inputs[0])
        if not _is_asked_for(operator, frames.resolved):
            return rows
        return frames.observe(EVENT_TIME, operator.id, rows, f"max({observed(operator, frames.clock)})")

    def observed(self, operator: p.Watermark, frames: Frames) -> int | None:
        """Return the greatest event time."""
        rows = frames.frame(operator.inputs[0])
        latest: int | None = rows.selectExpr(f"max({observed(operator, frames.clock)})").collect()[0][0]
        return latest

    def query(self, operator: p.Watermark, frames: Frames) -> str | None:
        """Return the rows as text, where nothing is observed."""
        if _is_asked_for(operator, frames.resolved):
            return None
        return f"select * from {frames.table(operator.inputs[0])}"


def _is_asked_for(operator: p.Watermark, resolved: Resolved) -> bool:
    return any(operator.id in keyed.watermarks for keyed in resolved.keyed.values())
