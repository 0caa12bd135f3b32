"""A source as users give it: a streaming DataFrame, or a function of the session that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from midstream.errors import PlanError
from midstream.plan import code
from midstream.plan.code import Code
from midstream.plan.plan import Source
from midstream.spark.forbidden_nodes import INSTEAD, STATEFUL, reads_and_offends
from midstream.spark.types import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT = "max_rows"  # the parameter of a source's function that ms.tune(max_rows_per_epoch=...) sets


def given(id: str, source: DataFrame | Callable[..., DataFrame]) -> tuple[Source, DataFrame]:
    """Turn what the user gave into a source of a plan, and the stream itself."""
    made_by = None
    if callable(source):
        made_by = code.capture(source, what=f"the function of source {id!r}", shipped=True)
        frame = made(id, made_by, session_at_hand())
    else:
        frame = _checked(id, source)
    schema = ", ".join(
        f"`{field.name}` {ddl(field.dataType)}{'' if field.nullable else ' not null'}" for field in frame.schema
    )
    return Source(id=id, schema=schema, code=made_by), frame


def made(id: str, made_by: Code, spark: SparkSession, max_rows: int | None = None) -> DataFrame:
    """Make a source, with a bound on the rows of an epoch if one is set and the source takes one."""
    function = code.load(made_by)
    limit = {LIMIT: max_rows} if max_rows is not None and is_bounded(made_by) else {}
    return _checked(id, function(spark, **limit))


def is_bounded(made_by: Code | None) -> bool:
    """Tell whether a source takes a bound on the rows of an epoch."""
    return made_by is not None and LIMIT in inspect.signature(code.load(made_by)).parameters


def streams_of(frame: DataFrame) -> int:
    """Count the readers that a source is made of: each has a line in Spark's offset log."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = {leaves.apply(i) for i in range(leaves.length()) if leaves.apply(i).isStreaming()}
    return len(found)


def _checked(id: str, frame: Any) -> DataFrame:
    if not getattr(frame, "isStreaming", False):
        shown = "a batch DataFrame" if hasattr(frame, "schema") else type(frame).__name__
        raise PlanError(
            f"source {id!r} must be a streaming DataFrame (spark.readStream...) or a function of the session that "
            f"returns one, not {shown}"
        )
    instead = INSTEAD | STATEFUL
    _, offender = reads_and_offends(frame._jdf.queryExecution().analyzed(), lambda leaf: leaf.isStreaming(), instead)
    if offender is not None:
        raise PlanError(
            f"source {id!r} holds {offender}, which would keep state inside Spark, fixed when the query starts: remove "
            f"it from the source, and {instead[offender]}"
        )
    return frame  # type: ignore[no-any-return]


def session_at_hand() -> SparkSession:
    """The session of this thread, or else of this process."""
    if SparkContext._active_spark_context is None:
        raise PlanError("there is no Spark session yet; make one first")
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()  # a new thread has no active one
