"""Windows of event time as a kind of operator: tumbling, sliding, and sessions."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from midstream.errors import PlanError
from midstream.operators.aggregates.declare import CLOSES, START, WHOLE, with_end
from midstream.operators.aggregates.kind import accumulators, compiled_of, compiled_over, portable, results
from midstream.operators.keyed import KeyedKind, checked_keys, layout_of, watermarks_above
from midstream.operators.kind import Frames, Output, Resolving
from midstream.operators.resolved import Keyed, Resolved
from midstream.operators.schemas import arrow_schema, check_punctuation, serialised
from midstream.operators.shuffle import Dispatch, Sent, slots_frame
from midstream.operators.tables import PortableForm, PortableSessions, PortableWindows
from midstream.operators.windows.late import gives_late
from midstream.operators.windows.sessions import SessionTask
from midstream.operators.windows.sql import WindowSql
from midstream.operators.windows.task import PANE, WindowTask
from midstream.plan import plan as p
from midstream.plan.sql import quote
from midstream.plan.windows import BOUNDS


class WindowKind(KeyedKind[p.Window]):
    """Declared aggregates in each window of event time."""

    folds_rows = True

    counts_late = True
    closes_by_plan = True
    looks_at_once = True

    def resolve(self, operator: p.Window, rows: Resolving) -> Output:
        """Compile the aggregates; the key of what is kept has the pane, or the start of the session."""
        time, keys = rows.event_time(*operator.inputs), checked_keys(operator, rows, operator.keys, None)
        compiled = compiled_over(operator, rows.inputs[0], time)
        schema = results(operator, keys, compiled, BOUNDS)
        if time is None:
            raise PlanError(
                f"window {operator.id!r} needs an event time: write with_watermark(column, delay) before it"
            )
        check_punctuation(rows.spark, f"window {operator.id!r}", operator.punctuation, rows.inputs[0])
        if operator.is_session:
            compiled = with_end(compiled, operator.gap)
            keys = StructType([*keys, StructField(START, LongType())])
        else:
            keys = StructType([StructField(PANE, LongType()), *keys])
        kept = [f"{a.name} {a.dtype}" for a in compiled.accumulators]
        keyed = Keyed(
            rows.inputs[0], keys, time, watermarks_above(operator, rows.found.plan), arrow_schema(schema), compiled,
            layout=layout_of(keys, kept, f"{operator.spec.kept_in} "),
        )  # fmt: skip
        return Output(schema, BOUNDS[0], keyed)

    def frame(self, operator: p.Window, frames: Frames) -> DataFrame:
        """Return the windows, without the late rows that sessions emit too where `.late` is read."""
        if not gives_late(frames.resolved.plan, operator):
            return slots_frame(self, operator, frames)
        names = map(quote, frames.resolved.schemas[operator.id].names)
        return frames.everything(operator.id).where(f"{WHOLE} is null").selectExpr(*names)

    def everything(self, operator: p.Window, frames: Frames) -> DataFrame:
        """Return sessions, and late rows in a column of their own."""
        return slots_frame(self, operator, frames)

    def dispatch(self, operator: p.Window, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Send accumulators of panes; of sessions each row, since few have one key and time."""
        run, compiled = frames.keyed[operator.id], compiled_of(frames.resolved, operator.id)
        combine = (run.combine and not operator.is_session) or not compiled.liftable
        columns, moment = accumulators(compiled, combine), START if operator.is_session else PANE
        sql = WindowSql(frames.resolved, frames.keyed, frames.clock)
        rows = f"(select *, {sql.pane(operator)} as {moment} from {frames.table(operator.inputs[0])})"
        if operator.punctuation:
            says = f"bool_or({operator.punctuation})" if combine else f"({operator.punctuation})"
            columns[CLOSES] = f"coalesce({says}, false)"
        common |= {"compiled": compiled, "combined": combine}
        common |= {"lateness": operator.lateness, "updates": operator.emit == "update"}
        schema = frames.resolved.schemas[operator.id]
        if not operator.is_session:
            regimes, of_windows = sql.regimes(operator), sql.is_of_windows(operator)
            task = WindowTask(**common, regimes=regimes, of_windows=of_windows)
            return Dispatch(Sent(rows, columns, combine, with_keys=True, moment=moment), task, schema)
        if puts_aside := gives_late(frames.resolved.plan, operator):
            input = frames.resolved.keyed[operator.id].input
            columns[WHOLE] = _whole(input, combine)
            schema = _beside_late(schema, input)
            common["schema"] = serialised(arrow_schema(schema))
        sessions = SessionTask(**common, gives_late=puts_aside)
        return Dispatch(Sent(rows, columns, combine, with_keys=True, moment=moment), sessions, schema)

    def form(self, operator: p.Window, resolved: Resolved) -> PortableForm:
        """Return the tables of panes, or of sessions."""
        return portable(operator, resolved, PortableSessions if operator.is_session else PortableWindows)


def _whole(rows: StructType, combine: bool) -> str:
    """All columns of a row, or of all rows that the JVM folds into one, as a list."""
    row = f"struct({', '.join(quote(field.name) for field in rows)})"
    return f"collect_list({row})" if combine else f"array({row})"


def _beside_late(sessions: StructType, rows: StructType) -> StructType:
    """The columns of sessions and late rows together: those of the other kind are null."""
    fields = [StructField(field.name, field.dataType) for field in sessions]
    return StructType([*fields, StructField(WHOLE, ArrayType(rows))])
