"""The list of all kinds of operators, by the node of the plan that they belong to."""

from __future__ import annotations

from typing import Any

from midstream.operators.aggregates.kind import AggregateKind
from midstream.operators.functions.kind import FunctionKind
from midstream.operators.keyed import KeyedKind
from midstream.operators.kind import Kind
from midstream.operators.stateless.errors import ErrorsKind
from midstream.operators.stateless.map_arrow import MapArrowKind
from midstream.operators.stateless.sink import SinkKind
from midstream.operators.stateless.source import SourceKind
from midstream.operators.stateless.transform import TransformKind
from midstream.operators.stateless.union import UnionKind
from midstream.operators.stateless.watermark import WatermarkKind
from midstream.operators.windows.kind import WindowKind
from midstream.operators.windows.late import LateKind
from midstream.operators.windows.spread import SpreadKind
from midstream.plan import plan as p

KINDS: dict[type[p.Operator], Kind[Any]] = {
    p.Source: SourceKind(),
    p.Transform: TransformKind(),
    p.MapArrow: MapArrowKind(),
    p.Union: UnionKind(),
    p.Watermark: WatermarkKind(),
    p.Process: FunctionKind(),
    p.Aggregate: AggregateKind(),
    p.Window: WindowKind(),
    p.Spread: SpreadKind(),
    p.Late: LateKind(),
    p.Errors: ErrorsKind(),
    p.Sink: SinkKind(),
}


def register(node: type[p.Operator], kind: Kind[Any]) -> None:
    """Add a kind from elsewhere: plans may hold its node from now on, here and in plan files."""
    p.register_node(node)
    KINDS[node] = kind


def kind_of(operator: p.Operator) -> Kind[Any]:
    """Return what an operator means."""
    return KINDS[type(operator)]


def keyed_kind_of(operator: p.Operator) -> KeyedKind[Any]:
    """Return what a keyed operator means."""
    kind = kind_of(operator)
    assert isinstance(kind, KeyedKind), f"{operator.id!r} keeps no state"
    return kind
