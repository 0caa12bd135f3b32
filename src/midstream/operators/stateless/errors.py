"""Errors: the rows and timers that the function of an operator has failed on, and why."""

from __future__ import annotations

from pyspark.sql import DataFrame

from midstream.operators.dead_letters import ERRORS, shown
from midstream.operators.kind import Frames, Kind, Output, Resolving
from midstream.plan import plan as p
from midstream.plan.plan import Plan


class ErrorsKind(Kind[p.Errors]):
    """What a function has failed on."""

    def resolve(self, operator: p.Errors, rows: Resolving) -> Output:
        """Return the columns that errors have."""
        return Output(ERRORS)

    def frame(self, operator: p.Errors, frames: Frames) -> DataFrame:
        """Return what was put aside."""
        return failures(operator.of, frames)

    def reads_input(self, operator: p.Errors, plan: Plan) -> bool:
        """It reads what is put aside."""
        return False


def failures(id: str, frames: Frames) -> DataFrame:
    """Return what an operator has put aside, and why."""
    operator = frames.resolved.plan[id]
    if not operator.gives_errors:
        return frames.spark.createDataFrame([], ERRORS)
    return shown(frames.everything(id), id, operator.keys if isinstance(operator, p.KeyedOperator) else ())
