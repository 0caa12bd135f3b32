"""What all keyed kinds share: the contract, and the check of keys."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from midstream.errors import PlanError, first_line
from midstream.operators.aggregates.declare import CLOSES, START, WHOLE
from midstream.operators.kind import Frames, Kind, Node, Resolving
from midstream.operators.resolved import Resolved
from midstream.operators.schemas import unknown_column
from midstream.operators.shuffle import Dispatch, slots_frame
from midstream.operators.tables import TableForm
from midstream.operators.windows.task import PANE
from midstream.plan import plan as p
from midstream.plan.column_names import refuse_taken

_TAKEN = ("_slot", "_group", "_order", "_tie", "_rows", "_epoch", "_broadcast", PANE, START, CLOSES, WHOLE)


class KeyedKind(Kind[Node]):
    """What one kind of operator with state means."""

    folds_rows: bool = False  # the rows of a key can be folded before Python sees them
    closes_by_plan: bool = False  # after a change of the plan every group is processed: windows may close earlier
    looks_at_once: bool = False  # after a start from a savepoint every group is processed

    @abstractmethod
    def dispatch(self, operator: Node, frames: Frames, common: dict[str, Any]) -> Dispatch:
        """Return what is sent to the slots, and their task; `common` has the arguments of every `SlotTask`."""

    @abstractmethod
    def form(self, operator: Node, resolved: Resolved) -> TableForm:
        """Return what turns its state into the tables of a savepoint, and back."""

    def frame(self, operator: Node, frames: Frames) -> DataFrame:
        """Return what its tasks emit."""
        return slots_frame(self, operator, frames)


def checked_keys(
    operator: p.KeyedOperator, rows: Resolving, named: tuple[str, ...], broadcast: StructType | None
) -> StructType:
    """Return the key columns; refuse those that cannot be keys, and names that are taken.

    Args:
        operator: whose keys they are.
        rows: what is known before it.
        named: columns that must be there.
        broadcast: the columns of the rows that every group gets.
    """
    schema = rows.inputs[0]
    for column in named:
        if column not in schema.names:
            raise unknown_column(f"key_by of {operator.id!r}", column, schema)
    refuse_taken(operator.id, [*schema.names, *(broadcast.names if broadcast is not None else ())], _TAKEN)
    keys = StructType([schema[key] for key in operator.keys])
    for field in keys:
        _check_key(operator.id, field)
    if operator.partition_by:
        try:
            rows.spark.createDataFrame([], keys).selectExpr(f"xxhash64({operator.partition_by})")
        except PySparkException as error:
            raise PlanError(
                f"operator {operator.id!r}: partition_by={operator.partition_by!r} must be an expression over the key "
                f"columns {', '.join(keys.names)} alone: {first_line(error)}"
            ) from error
    return keys


def _check_key(id: str, field: StructField) -> None:
    if isinstance(field.dataType, MapType) or "map<" in field.dataType.simpleString():
        raise PlanError(f"operator {id!r}: column {field.name!r} holds a map and cannot be a key")
    if isinstance(field.dataType, (ArrayType, StructType)):
        raise PlanError(
            f"operator {id!r}: column {field.name!r} is {field.dataType.simpleString()} and cannot be a key; key by "
            "its parts, or by to_json of it"
        )


def watermarks_above(operator: p.KeyedOperator, plan: p.Plan) -> tuple[str, ...]:
    """Return the watermark operators that its rows have passed."""
    return tuple(o.id for o in plan.upstream(operator.inputs[0]) if isinstance(o, p.Watermark))


def layout_of(keys: StructType, kept: list[str], form: str = "") -> str:
    """Return the stored form of state as text: what has another one cannot read it."""
    by = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in keys)
    return f"{form}by ({by}): {', '.join(kept)}".replace("  ", " ")
