"""The rows with the greatest value of a column, per window: what the user writes, and the operators it becomes.

    bids ── best.windows (each row in its windows) ── best.rows (transform: of each epoch, the rows that lead)
         ── best (process: of all, once the window closes)

The second only saves the third work: a row that does not lead its epoch's rows cannot lead them all. Where the rows are
windows that have closed, there is no first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from midstream.errors import PlanError
from midstream.flow import builders
from midstream.operators.resolve import worked_out
from midstream.operators.schemas import check_punctuation
from midstream.operators.windows.top import Leading, Top
from midstream.plan.column_names import clash, refuse_taken
from midstream.plan.plan import AnyOperator, Plan, Spread
from midstream.plan.sql import quote
from midstream.plan.windows import (
    BOUNDS,
    AnyWindow,
    CountWindow,
    Window,
)
from midstream.spark.types import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def top(
    session: SparkSession,
    plan: Plan,
    input: str,
    keys: Sequence[str],
    window: AnyWindow | CountWindow | None,
    partition_by: str,
    punctuation: str,
    *,
    id: str,
    n: int,
    by: str,
    ties: bool,
    slots: int,
) -> list[AnyOperator]:
    """Return the operators; without a `window` the rows of `input` have the bounds of theirs already."""
    if not isinstance(n, int) or n < 1:
        raise PlanError(f"top {id!r} needs a whole number of rows, 1 or more, not {n!r}")
    if window is not None and not isinstance(window, Window):
        raise PlanError(f"top {id!r} needs ms.tumbling(...) or ms.sliding(...); the rows of other windows are not kept")
    resolved = worked_out(session, plan)
    schema, time = resolved.schemas[input], resolved.event_times[input]
    for column in (by, *keys):
        if column not in schema.names:
            raise PlanError(f"top {id!r}: there is no column {column!r}; the stream has {', '.join(schema.names)}")
    if window is not None and time is None:
        raise PlanError(f"top {id!r} needs event time: say with_watermark(column, delay) before it")
    if window is not None and (name := clash(schema.names, BOUNDS)):
        raise PlanError(f"top {id!r}: the rows have a column {name!r}, as the windows will; rename it in a transform")
    if window is None and any(name not in schema.names for name in BOUNDS):
        raise PlanError(f"top {id!r} needs windows of event time, with {' and '.join(BOUNDS)}; {input!r} has none")
    refuse_taken(id, schema.names, ("_ends", "_rank"))
    check_punctuation(session, f"top {id!r}", punctuation, schema)
    types = {field.name: ddl(field.dataType) for field in schema}
    made: list[AnyOperator] = []
    if window is not None:
        types |= dict.fromkeys(BOUNDS, "timestamp")
        made.append(Spread(id=f"{id}.windows", inputs=(input,), of=id, size=window.size, slide=window.slide))
        input = f"{id}.windows"
    leading = Leading(n, by, (*keys, *BOUNDS), punctuation)
    made.append(builders.reading(builders.transform(leading, per_epoch=True, id=f"{id}.rows"), input))
    kept = f"struct<{', '.join(f'{quote(name)}: {type}' for name, type in types.items())}>"
    function = Top(n, list(types).index(by), ties, kept, ends=bool(punctuation))
    shown = ", ".join(f"{quote(name)} {type}" for name, type in types.items()) if punctuation else ""
    keyed = builders.key_by(*keys, *BOUNDS, partition_by=partition_by)
    return [*made, builders.reading(keyed.process(function, schema=shown, slots=slots, id=id), f"{id}.rows")]
