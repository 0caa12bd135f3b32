"""Transforms: DataFrame functions of the user, over the rows of one epoch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from midstream.operators.joins.common_form import SideForm
from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.operators.transforms import transformed
from midstream.plan import code
from midstream.plan import plan as p


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
