"""Unions: the rows of several streams of one schema."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from midstream.errors import PlanError
from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.plan import plan as p


class UnionKind(Kind[p.Union]):
    """The rows of several streams."""

    def resolve(self, operator: p.Union, rows: Resolving) -> Output:
        """Refuse streams of different schemas."""
        first = rows.inputs[0]
        for id, other in zip(operator.inputs, rows.inputs, strict=True):
            if [(f.name, f.dataType) for f in other] != [(f.name, f.dataType) for f in first]:
                raise PlanError(
                    f"union {operator.id!r}: {operator.inputs[0]!r} has {first.simpleString()}, {id!r} has "
                    f"{other.simpleString()}; give both the same columns with a transform"
                )
        schema = StructType([StructField(f.name, f.dataType, True) for f in first])
        return Output(schema, rows.event_time(*operator.inputs))

    def query(self, operator: p.Union, frames: Frames) -> str:
        """Return all rows."""
        return " union all ".join(f"select * from {frames.table(id)}" for id in operator.inputs)
