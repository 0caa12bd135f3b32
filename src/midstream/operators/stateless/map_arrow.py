"""Functions over Arrow batches, on the executors."""

from __future__ import annotations

from pyspark.sql import DataFrame

from midstream.operators.dead_letters import FAILED, beside_failed, without_failed
from midstream.operators.kind import FAILED_ROWS, Frames, Kind, Output, Resolving
from midstream.operators.map_arrow import ArrowTask
from midstream.operators.schemas import arrow_schema, parse_schema, serialised
from midstream.plan import plan as p
from midstream.plan.column_names import refuse_taken


class MapArrowKind(Kind[p.MapArrow]):
    """A function over Arrow batches."""

    def resolve(self, operator: p.MapArrow, rows: Resolving) -> Output:
        """Read the declared schema."""
        schema = parse_schema(operator.schema, f"map_arrow {operator.id!r}")
        if operator.gives_errors:
            refuse_taken(operator.id, schema.names, (FAILED,))
        return Output(schema, rows.event_time(*operator.inputs))

    def frame(self, operator: p.MapArrow, frames: Frames) -> DataFrame:
        """Return what the function returns, without what it fails on."""
        if operator.gives_errors:
            return without_failed(frames.everything(operator.id), frames.resolved.schemas[operator.id].names)
        return self._mapped(operator, frames)

    def everything(self, operator: p.MapArrow, frames: Frames) -> DataFrame:
        """Return what the function returns and what it fails on; its task makes no report, so failures are counted."""
        return frames.observe(FAILED_ROWS, operator.id, self._mapped(operator, frames), f"count({FAILED})")

    def observed(self, operator: p.MapArrow, frames: Frames) -> int:
        """Count what it fails on."""
        return int(frames.everything(operator.id).selectExpr(f"count({FAILED})").collect()[0][0])

    def _mapped(self, operator: p.MapArrow, frames: Frames) -> DataFrame:
        schema, puts_aside = frames.resolved.schemas[operator.id], operator.gives_errors
        if puts_aside:
            schema = beside_failed(schema, frames.resolved.schemas[operator.inputs[0]])
        task = ArrowTask(operator.id, operator.code, serialised(arrow_schema(schema)), puts_aside)
        return frames.frame(operator.inputs[0]).mapInArrow(task, schema)
