"""A validated plan: the schema of every operator, and what keyed operators need to know of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from midstream.errors import PlanError
from midstream.operators.aggregates.declare import Compiled
from midstream.operators.schemas import is_float
from midstream.plan import plan as p
from midstream.plan.sql import quote
from midstream.state.entries import Stage


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a keyed operator needs to know of its rows."""

    input: StructType
    keys: StructType
    event_time: str | None
    watermarks: tuple[str, ...]  # the watermark operators upstream
    output: pa.Schema
    compiled: Compiled | None = None
    stages: tuple[Stage, ...] = ()  # of a function: the forms of its state, newest first
    layout: str = ""  # the stored form of the state: what has another layout cannot read it
    base: int = 0  # where the entries of this form begin
    top: int = 0  # the first number that no form uses
    shared: Stage | None = None  # of a function: the state of its groups
    broadcast_time: str | None = None  # the event time of the broadcast rows


@dataclass(frozen=True, slots=True)
class Resolved:
    """A validated plan."""

    plan: p.Plan
    schemas: dict[str, StructType]
    event_times: dict[str, str | None]
    keyed: dict[str, Keyed]


class ResolutionError(PlanError):
    """An operator that does not fit its inputs."""

    def __init__(self, message: str, operator: str, inputs: dict[str, StructType]) -> None:
        super().__init__(message)
        self.operator, self.inputs = operator, inputs


def check_layout(operator: str, stored: dict[int, str], keyed: Keyed) -> None:
    """Refuse to read state of another layout."""
    known = stored.get(keyed.base, "")
    if known and known != keyed.layout:
        raise PlanError(
            f"the state of operator {operator!r} is stored {known}; the flow now needs it {keyed.layout}. "
            "Keep the types of its columns, give the operator another id, or start with a new checkpoint"
        )


def hashed(operator: p.KeyedOperator, keyed: Keyed) -> str:
    """What a key's group is computed from, as SQL; -0.0 and 0.0 are one key."""
    if operator.partition_by:
        return operator.partition_by
    keys = (f"{quote(key)} + 0D" if is_float(keyed.input, key) else quote(key) for key in operator.keys)
    return ", ".join(keys) or "0"
