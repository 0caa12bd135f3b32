"""Sources: the rows of one of them in the batch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.operators.schemas import parse_schema
from midstream.plan import plan as p


class SourceKind(Kind[p.Source]):
    """Where rows come from."""

    def resolve(self, operator: p.Source, rows: Resolving) -> Output:
        """Read the schema that was found when the source was given."""
        return Output(parse_schema(operator.schema, f"source {operator.id!r}"))

    def frame(self, operator: p.Source, frames: Frames) -> DataFrame:
        """Return its rows, not as text: that would need a view, which takes longer to make."""
        rows, columns, is_mine = frames.source(operator)
        return rows.where(is_mine).selectExpr(*columns) if is_mine else rows.selectExpr(*columns)

    def query(self, operator: p.Source, frames: Frames) -> str:
        """Return its rows as text, over a view of the batch."""
        rows, columns, is_mine = frames.source(operator)
        view = f"_midstream_batch_{list(frames.resolved.schemas).index(operator.id)}"
        rows.createOrReplaceTempView(view)
        return f"select {', '.join(columns)} from {view}{f' where {is_mine}' if is_mine else ''}"
