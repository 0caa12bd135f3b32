"""Late rows: those that the windows of an operator do not take, and why."""

from __future__ import annotations

from pyspark.sql.types import StringType, StructField, StructType

from midstream.operators.aggregates.declare import WHOLE
from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.operators.windows.sql import LATE_REASON, WindowSql
from midstream.plan import plan as p
from midstream.plan.column_names import refuse_taken


class LateKind(Kind[p.Late]):
    """The rows that windows do not take."""

    def resolve(self, operator: p.Late, rows: Resolving) -> Output:
        """Return the columns of the rows, and the reason."""
        windows = p.windows_late_for(rows.found.plan, operator)
        schema = rows.found.schemas[windows.inputs[0]] if p.is_session(windows) else rows.inputs[0]
        refuse_taken(operator.id, schema.names, (LATE_REASON,))
        return Output(StructType([*schema, StructField(LATE_REASON, StringType())]), rows.event_time(*operator.inputs))

    def query(self, operator: p.Late, frames: Frames) -> str:
        """Return the late rows; of sessions only their task knows which these are."""
        sql = WindowSql(frames.resolved, frames.keyed, frames.clock)
        windows = p.windows_late_for(frames.resolved.plan, operator)
        if not gives_late(frames.resolved.plan, windows):
            return sql.late(operator, frames.table(operator.inputs[0]))
        view = f"_midstream_batch_late_{list(frames.resolved.keyed).index(windows.id)}"
        frames.everything(windows.id).selectExpr(f"inline({WHOLE})").createOrReplaceTempView(view)
        return sql.late(operator, view)

    def reads_input(self, operator: p.Late, plan: p.Plan) -> bool:
        """Late rows of sessions come from these, and not from their input."""
        return not gives_late(plan, plan[operator.of])


def gives_late(plan: p.Plan, operator: p.AnyOperator) -> bool:
    """Whether these are sessions whose late rows are read."""
    return p.is_session(operator) and any(late.of == operator.id for late in plan.of(p.Late))
