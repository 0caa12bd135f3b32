"""A plan as text: JSON that is read back without running anything. Pure."""

from __future__ import annotations

import ast
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from midstream.errors import PlanError
from midstream.plan.plan import Plan, StateField, Tuning, node_of


def encode(plan: Plan) -> bytes:
    """Write a plan as JSON."""
    return msgspec.json.format(msgspec.json.encode(_with_defaults(plan, _shown)), indent=1)


def decode(text: bytes) -> Plan:
    """Read a plan that `encode` wrote."""
    return _with_defaults(decode_plain(text), _read)


class _Written(msgspec.Struct):
    name: str
    operators: tuple[msgspec.Raw, ...]
    version: int = 1
    tuning: Tuning = Tuning()


class _Tagged(msgspec.Struct):
    kind: str


def decode_plain(text: bytes | msgspec.Raw) -> Plan:
    """Read a plan, leaving defaults of state as they were written; nodes are those that are registered."""
    written = msgspec.json.decode(text, type=_Written)
    tags = [msgspec.json.decode(raw, type=_Tagged).kind for raw in written.operators]
    operators: tuple[Any, ...] = tuple(
        msgspec.json.decode(raw, type=node_of(tag)) for tag, raw in zip(tags, written.operators, strict=True)
    )
    return Plan(name=written.name, operators=operators, version=written.version, tuning=written.tuning)


def _with_defaults(plan: Plan, convert: Callable[[StateField], Any]) -> Plan:
    """Convert the defaults of declared state: JSON has no infinities, decimals or moments."""

    def converted(field: StateField) -> StateField:
        return msgspec.structs.replace(field, default=convert(field))

    operators = tuple(operator.with_fields(converted) for operator in plan.operators)
    return msgspec.structs.replace(plan, operators=operators)


def _shown(field: StateField) -> str | None:
    """Write a default as a Python literal, or as its kind and text: nothing that is read from a plan is run."""
    value = field.default
    if value is None:
        return None
    if isinstance(value, (bool, int, str, bytes, tuple)) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    for kind, (type, write, _) in _KINDS.items():
        if isinstance(value, type):
            return f"{kind} {write(value)}"
    raise PlanError(f"the default of state {field.name!r}, {value!r}, cannot be kept: use a plain Python value")


def _read(field: StateField) -> Any:
    if field.default is None:
        return None
    kind, _, text = field.default.partition(" ")
    return _KINDS[kind][2](text) if kind in _KINDS else ast.literal_eval(field.default)


# kind -> (type, to text, from text); a moment is a date too, so it comes first
_KINDS: dict[str, tuple[Any, Callable[[Any], str], Callable[[str], Any]]] = {
    "float": (float, repr, float),  # infinities and NaN
    "decimal": (Decimal, str, Decimal),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
}
