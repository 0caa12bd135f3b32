"""The rows with the greatest value of a column, per window: what the user writes, and the operators it becomes.

    bids ── best.windows (each row in its windows) ── best.rows (transform: of each epoch, the rows that lead)
         ── best (process: of all, once the window closes)

The second only saves work for the third: a row that is not at the top of its epoch's rows cannot be at the top of all.
Where the rows are windows that have closed, there is no first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.resolve import worked_out
from midstream.operators.schemas import check_punctuation
from midstream.operators.windows.top import Leading, Top
from midstream.plan.column_names import clash, refuse_taken
from midstream.plan.plan import AnyOperator, Plan, Spread
from midstream.plan.sql import quote
from midstream.plan.windows import BOUNDS, AnyWindow, CountWindow, TimeWindow
from midstream.spark.types import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Ranked:
    """The rows that are ranked: within a window and the rows of some keys, or of all."""

    input: str
    keys: Sequence[str] = ()
    window: AnyWindow | CountWindow | None = None  # none: the rows of `input` have the bounds of theirs already
    partition_by: str = ""
    punctuation: str = ""


def top(
    session: SparkSession, plan: Plan, rows: Ranked, *, id: str, n: int, by: str, ties: bool, slots: int
) -> list[AnyOperator]:
    """Return the operators."""
    if not isinstance(n, int) or n < 1:
        raise PlanError(f"top {id!r} needs a whole number of rows, 1 or more, not {n!r}")
    schema = _checked(session, plan, rows, id, by)
    keys, window, input = rows.keys, rows.window, rows.input
    types = {field.name: ddl(field.dataType) for field in schema}
    made: list[AnyOperator] = []
    if isinstance(window, TimeWindow):
        types |= dict.fromkeys(BOUNDS, "timestamp")
        made.append(Spread(id=f"{id}.windows", inputs=(input,), of=id, size=window.size, slide=window.slide))
        input = f"{id}.windows"
    leading = Leading(n, by, (*keys, *BOUNDS), rows.punctuation)
    made.append(builders.reading(builders.transform(leading, per_epoch=True, id=f"{id}.rows"), input))
    kept = f"struct<{', '.join(f'{quote(name)}: {type}' for name, type in types.items())}>"
    function = Top(n, list(types).index(by), ties, kept, ends=bool(rows.punctuation))
    shown = ", ".join(f"{quote(name)} {type}" for name, type in types.items()) if rows.punctuation else ""
    keyed = builders.key_by(*keys, *BOUNDS, partition_by=rows.partition_by)
    return [*made, builders.reading(keyed.process(function, schema=shown, slots=slots, id=id), f"{id}.rows")]


def _checked(session: SparkSession, plan: Plan, rows: Ranked, id: str, by: str) -> StructType:
    """Return the columns of the rows; refuse those that cannot be ranked."""
    if rows.window is not None and not isinstance(rows.window, TimeWindow):
        raise PlanError(f"top {id!r} needs ms.tumbling(...) or ms.sliding(...); the rows of other windows are not kept")
    resolved = worked_out(session, plan)
    schema, time = resolved.schemas[rows.input], resolved.event_times[rows.input]
    for column in (by, *rows.keys):
        if column not in schema.names:
            raise PlanError(f"top {id!r}: there is no column {column!r}; the stream has {', '.join(schema.names)}")
    if rows.window is not None and time is None:
        raise PlanError(f"top {id!r} needs event time: write with_watermark(column, delay) before it")
    if rows.window is not None and (name := clash(schema.names, BOUNDS)):
        raise PlanError(f"top {id!r}: the rows have a column {name!r}, as the windows will; rename it in a transform")
    if rows.window is None and any(name not in schema.names for name in BOUNDS):
        raise PlanError(f"top {id!r} needs windows of event time, with {' and '.join(BOUNDS)}; {rows.input!r} has none")
    refuse_taken(id, schema.names, ("_ends", "_rank"))
    check_punctuation(session, f"top {id!r}", rows.punctuation, schema)
    return schema
